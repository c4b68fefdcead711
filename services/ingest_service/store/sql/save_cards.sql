-- Create or change cards, in order of id; the cards that exist are locked by lock_cards before.
-- $1 text[] ids, $2 text[] accounts, $3 text[] numbers, $4 text[] lifecycles, $5 boolean[] polling switches, $6 timestamptz now.
-- Returns each card as stored and whether it is new.
INSERT INTO card (card_id, account_id, msisdn, lifecycle, polling_enabled, updated_at)
SELECT given.*, $6::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) AS given
ON CONFLICT (card_id) DO UPDATE
SET account_id = excluded.account_id, msisdn = excluded.msisdn, lifecycle = excluded.lifecycle,
    polling_enabled = excluded.polling_enabled, updated_at = excluded.updated_at, version = card.version + 1
RETURNING card_id, account_id, msisdn, lifecycle, polling_enabled, network_status, realname_status, cycle_start,
          cycle_used_bytes, applied_count, observed_at, updated_at, version, version = 1 AS created
