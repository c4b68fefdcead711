-- List the ended attempts of a task in order.
-- $1 id uuid, $2 tenant text.
-- Returns epoch, worker, outcome, error_class, error, started_at, finished_at.
-- Cost: one partition, one range of the key.
SELECT o.epoch, o.worker, o.outcome, o.error_class, o.error, o.started_at, o.finished_at
FROM task_outcome o
WHERE o.task_id = $1 AND o.started_at IS NOT NULL AND EXISTS (SELECT FROM task t WHERE t.id = $1 AND t.tenant = $2)
ORDER BY o.step
