-- Let a message wait; its NSQ message is finished afterwards. One row per body, whoever brings it.
-- $1 bytea SHA-256 of the body; $2 bytea body; $3 uuid observation or null; $4 integer: major version that it waits for, 0
-- when it waits for time only; $5 text error; $6 timestamptz now; $7 timestamptz due.
INSERT INTO ingest_retry (
    body_digest, body, observation_id, parked_major, attempts, last_error, first_failed_at, due_at)
VALUES ($1, $2, $3, $4, 1, $5, $6, $7)
ON CONFLICT (body_digest) DO NOTHING
