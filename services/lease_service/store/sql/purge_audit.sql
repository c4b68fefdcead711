-- Delete audit events that are older than the retention, a bounded number at a time.
-- $1 oldest instant to keep, $2 most rows. Returns how many were deleted. Cost: the deleted rows.
WITH old AS (
    SELECT pool, event_id, kind, token FROM slot_audit WHERE at < $1 ORDER BY at LIMIT $2
), gone AS (
    DELETE FROM slot_audit AS audit USING old
    WHERE (audit.pool, audit.event_id, audit.kind, audit.token) = (old.pool, old.event_id, old.kind, old.token)
    RETURNING 1
)
SELECT count(*) FROM gone
