-- Read one task and derive its state from where it is.
-- $1 id uuid, $2 tenant text.
-- Returns the request, state, attempt_count, result, error, progress and times; no row for another tenant's task.
-- Cost: one partition of task and of task_outcome, probes by key; no lock.
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
WHERE t.id = $1 AND t.tenant = $2
