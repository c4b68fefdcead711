-- Read cards by id, in order of id. $1 text[] ids.
SELECT card_id, account_id, msisdn, lifecycle, polling_enabled, network_status, realname_status, cycle_start,
       cycle_used_bytes, applied_count, observed_at, updated_at, version
FROM card
WHERE card_id = ANY ($1::text[])
ORDER BY card_id
