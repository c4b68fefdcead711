-- Find a task's last event and whether the task is over.
-- $1 task_id uuid, $2 tenant text.
-- Returns epoch, seq (0, 0 without events) and terminal; no row for an unknown or another tenant's task.
-- Cost: probes by key.
SELECT coalesce(e.epoch, 0) AS epoch, coalesce(e.seq, 0) AS seq, coalesce(o.terminal, false) AS terminal
FROM task t
LEFT JOIN LATERAL (
    SELECT epoch, seq FROM (
        (SELECT epoch, seq FROM task_event WHERE task_id = t.id ORDER BY epoch DESC, seq DESC LIMIT 1)
        UNION ALL
        (SELECT epoch, 9007199254740991 FROM task_outcome WHERE task_id = t.id AND terminal ORDER BY step DESC LIMIT 1)
    ) AS last ORDER BY epoch DESC, seq DESC LIMIT 1
) e ON true
LEFT JOIN LATERAL (SELECT terminal FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
WHERE t.id = $1 AND t.tenant = $2
