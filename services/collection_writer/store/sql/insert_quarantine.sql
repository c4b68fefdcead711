-- Keep records that can't be stored.
-- $1 text[] sources (message, rpc); $2 text[] observation ids or null; $3 text[] card ids or null; $4 text[] reasons;
-- $5 text[] SQLSTATEs or null; $6 bytea[] bodies as they came. All of one length.
-- Invariant: one row per body; a body that comes again raises seen_count, renews reason and SQLSTATE, and is open again.
-- Cost: one statement; a digest per body.
INSERT INTO collection_quarantine (source, observation_id, card_id, reason, sqlstate, body, body_digest)
SELECT DISTINCT ON (sha256(given.body))
    given.source, given.observation_id, given.card_id, given.reason, given.sqlstate, given.body, sha256(given.body)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
    AS given (source, observation_id, card_id, reason, sqlstate, body)
ORDER BY sha256(given.body)
ON CONFLICT (body_digest) DO UPDATE SET
    seen_count = collection_quarantine.seen_count + 1,
    reason = excluded.reason,
    sqlstate = excluded.sqlstate,
    replayed_at = NULL
