-- Find tasks whose time has come and hold them until the transaction ends.
-- $1 limit int.
-- Returns id, due_at, channel, tenant, priority, first due first.
-- Invariant: rows that another promoter holds are skipped.
-- Cost: a range of the key from its start; per task one probe of task.
SELECT d.id, d.due_at, d.channel, t.tenant, t.priority
FROM (
    SELECT due_at, id, channel FROM task_deferred
    WHERE due_at <= now()
    ORDER BY due_at, id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) d
CROSS JOIN LATERAL (SELECT tenant, priority FROM task WHERE task.id = d.id OFFSET 0) t
ORDER BY d.due_at, d.id
