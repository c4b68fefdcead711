-- Run a failed or cancelled task again with a fresh attempt budget.
-- $1 id uuid, $2 tenant text.
-- Returns id, channel when it waits again now; no row when it is not ended, ended well, or its deadline has passed.
-- Invariant: the outcome's key lets one of several concurrent retries through. The epoch rises, so that each life of the task
-- has an end event of its own.
-- Cost: probes by key; two inserts.
WITH target AS MATERIALIZED (
    SELECT t.*, o.step AS last_step, o.epoch + 1 AS next_epoch, task_run_order(now(), t.priority) AS next_order
    FROM task t
    JOIN LATERAL (SELECT * FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
    WHERE t.id = $1 AND t.tenant = $2 AND o.terminal AND o.outcome <> 'succeeded'
      AND (t.deadline_at IS NULL OR t.deadline_at > now())
), marked AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, run_order)
    SELECT id, last_step + 1, next_epoch, 0, 'retried', false, next_order FROM target
    ON CONFLICT DO NOTHING
    RETURNING task_id
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT t.channel, t.next_order, t.id, t.kind, t.payload_version, t.deadline_at, t.next_epoch, 0, t.last_step + 2
    FROM target t JOIN marked m ON m.task_id = t.id
    RETURNING id, channel
)
SELECT id, channel FROM ready
