-- Claim messages that are due, by moving their due time past the time an attempt may take: several processes share the work.
-- $1 timestamptz now; $2 integer: the major version this reader reads; $3 integer: most rows; $4 timestamptz: due again
-- unless the attempt ends before.
-- Cost: one index range; rows claimed by others are skipped.
UPDATE ingest_retry AS waiting SET due_at = $4
FROM (
    SELECT retry_id FROM ingest_retry
    WHERE due_at <= $1 AND parked_major <= $2
    ORDER BY due_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
) AS due
WHERE waiting.retry_id = due.retry_id
RETURNING waiting.retry_id, waiting.body, waiting.attempts, waiting.observation_id, waiting.first_failed_at
