-- Run a failed or cancelled task again with a fresh attempt budget.
-- $1 id uuid, $2 tenant text, $3 run_order bigint (its place in the queue).
-- Returns id, channel, refused when it waits again now (refused false) or its tenant's quota can't bear it (refused true);
-- no row when it is not ended, ended well, or its deadline has passed.
-- Invariant: the outcome's key lets one of several concurrent retries through. The epoch rises, so that each life of the task
-- has an end event of its own. A cost is reserved again, under the quota's lock.
-- Cost: probes by key; two or three inserts.
WITH target AS MATERIALIZED (
    SELECT t.*, o.step AS last_step, o.epoch + 1 AS next_epoch
    FROM task t
    JOIN LATERAL (SELECT * FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
    WHERE t.id = $1 AND t.tenant = $2 AND o.terminal AND o.outcome <> 'succeeded'
      AND (t.deadline_at IS NULL OR t.deadline_at > now())
), limited AS MATERIALIZED (
    SELECT q.unit_limit - q.reserved - q.spent AS left_units FROM quota q
    WHERE q.tenant = (SELECT tenant FROM target WHERE cost > 0) AND q.unit_limit IS NOT NULL
    FOR UPDATE
), allowed AS (
    SELECT * FROM target t WHERE NOT EXISTS (SELECT FROM limited WHERE t.cost > left_units)
), marked AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, run_order)
    SELECT id, last_step + 1, next_epoch, 0, 'retried', false, $3 FROM allowed
    ON CONFLICT DO NOTHING
    RETURNING task_id
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT t.channel, $3, t.id, t.kind, t.payload_version, t.deadline_at, t.next_epoch, 0, t.last_step + 2
    FROM allowed t JOIN marked m ON m.task_id = t.id
    RETURNING id, channel
), reserved AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT t.tenant, t.id, task_life(t.id) + 1, 'reserve', t.cost FROM allowed t JOIN marked m ON m.task_id = t.id
    WHERE t.cost > 0
)
SELECT id, channel, false AS refused FROM ready
UNION ALL
SELECT id, channel, true FROM target WHERE id NOT IN (SELECT id FROM allowed)
