-- Keep a message that can't be stored.
-- $1 bytea SHA-256 of the body; $2 bytea body; $3 uuid observation or null; $4 text card or ''; $5 text reason; $6 text
-- SQLSTATE or ''; $7 timestamptz now.
-- The same body again raises seen_count and shows the latest reason; a replayed row is open again.
INSERT INTO ingest_quarantine AS kept (
    body_digest, body, observation_id, card_id, reason, sqlstate, quarantined_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (body_digest) DO UPDATE
SET seen_count = kept.seen_count + 1, reason = excluded.reason, sqlstate = excluded.sqlstate, replayed_at = NULL
