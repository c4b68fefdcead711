-- Forget events that were published long ago, a few at a time. $1 timestamptz: published before; $2 integer: most rows.
-- Returns how many were deleted.
WITH old AS (
    SELECT outbox_id FROM ingest_outbox WHERE published_at < $1 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM ingest_outbox USING old WHERE ingest_outbox.outbox_id = old.outbox_id RETURNING 1
)
SELECT count(*) FROM gone
