-- Let a message wait longer after another failure.
-- $1 bigint id; $2 integer attempts so far; $3 text error; $4 timestamptz due; $5 integer: major version that it waits for.
UPDATE ingest_retry SET attempts = $2, last_error = $3, due_at = $4, parked_major = $5 WHERE retry_id = $1
