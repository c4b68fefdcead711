-- Page through a tenant's tasks, newest first.
-- $1 tenant text, $2 channel text (empty: all), $3 state text (empty: all), $4 before uuid (null: from the newest), $5 limit int.
-- Returns rows as get_task does.
-- Cost: walks the tenant's tasks from the newest until the page is full; a rare state walks far, the statement's time limit ends it.
SELECT * FROM (
SELECT t.id, t.tenant, t.channel, t.kind, t.payload::text AS payload, t.payload_version, t.priority, t.max_attempts, t.created_at,
       t.deadline_at, coalesce(t.cost, 0) AS cost,
       CASE WHEN l.task_id IS NOT NULL THEN 'running'
            WHEN o.terminal THEN CASE o.outcome WHEN 'succeeded' THEN 'succeeded' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END
            WHEN d.id IS NOT NULL THEN 'deferred'
            ELSE 'ready' END AS state,
       coalesce(l.attempt, o.attempt, 0) AS attempt_count,
       o.result::text AS result,
       o.error,
       coalesce(l.progress_percent, CASE WHEN o.outcome = 'succeeded' THEN 100 ELSE 0 END) AS progress_percent,
       coalesce(f.started_at, l.claimed_at) AS started_at,
       CASE WHEN l.task_id IS NULL AND o.terminal THEN o.finished_at END AS finished_at,
       CASE WHEN o.step IS NULL THEN t.due_at WHEN NOT o.terminal THEN o.due_at END AS due_at,
       coalesce(l.cancel_requested, o.outcome = 'cancelled', false) AS cancel_requested,
       coalesce(l.worker, '') AS worker
FROM task t
LEFT JOIN task_lease l ON l.task_id = t.id
LEFT JOIN LATERAL (
    SELECT * FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1
) o ON true
LEFT JOIN LATERAL (
    SELECT started_at FROM task_outcome WHERE task_id = t.id AND started_at IS NOT NULL ORDER BY step LIMIT 1
) f ON true
LEFT JOIN task_deferred d
    ON d.id = t.id AND d.due_at = CASE WHEN o.step IS NULL THEN t.due_at ELSE o.due_at END
WHERE t.tenant = $1 AND ($2 = '' OR t.channel = $2) AND ($4::uuid IS NULL OR t.id < $4)
ORDER BY t.id DESC
) AS s
WHERE $3 = '' OR s.state = $3
ORDER BY s.id DESC
LIMIT $5
