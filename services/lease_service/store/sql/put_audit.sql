-- Store audit events; those that are stored already are left as they are, so a batch may be repeated.
-- $1..$11 arrays of one length: pool, event_id, kind, token, at, fence, weight, scopes joined by commas, owner, job, note.
-- Returns nothing. Invariant: one row per event. Cost: one row each.
INSERT INTO slot_audit (pool, event_id, kind, token, at, fence, weight, scopes, owner, job, note)
SELECT pool, event_id, kind, token, at, fence, weight, string_to_array(scopes, ','), owner, job, note
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::integer[], $8::text[],
            $9::text[], $10::text[], $11::text[])
    AS event (pool, event_id, kind, token, at, fence, weight, scopes, owner, job, note)
ON CONFLICT DO NOTHING
