-- Create or change accounts, in order of id.
-- $1 text[] ids, $2 text[] names, $3 text[] gateway kinds, $4 text[] addresses, $5 text[] credential names, $6 smallint[] reset
-- days, $7 text[] zones, $8 integer[] intervals in seconds, $9 boolean[] enabled, $10 timestamptz now.
INSERT INTO account (
    account_id, name, gateway_kind, gateway_url, credential_name, reset_day, time_zone, poll_interval_s, enabled,
    updated_at)
SELECT given.*, $10::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::integer[],
            $9::boolean[]) AS given
ON CONFLICT (account_id) DO UPDATE
SET name = excluded.name, gateway_kind = excluded.gateway_kind, gateway_url = excluded.gateway_url,
    credential_name = excluded.credential_name, reset_day = excluded.reset_day, time_zone = excluded.time_zone,
    poll_interval_s = excluded.poll_interval_s, enabled = excluded.enabled, updated_at = excluded.updated_at
