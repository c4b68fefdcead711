-- End a task that waits.
-- $1 id uuid, $2 tenant text, $3 reason text.
-- Returns id when it was waiting and is cancelled now; no row otherwise.
-- Invariant: the row in task_ready or task_deferred is the right to end the task: a claim that deletes it first wins.
-- Cost: probes by key; one delete, two inserts.
WITH target AS MATERIALIZED (
    SELECT t.id, t.tenant, t.channel, t.cost,
           CASE WHEN o.step IS NULL THEN t.run_order ELSE o.run_order END AS run_order,
           CASE WHEN o.step IS NULL THEN t.due_at ELSE o.due_at END AS due_at
    FROM task t
    LEFT JOIN LATERAL (SELECT * FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
    WHERE t.id = $1 AND t.tenant = $2
), from_ready AS (
    DELETE FROM task_ready r USING target t WHERE r.channel = t.channel AND r.run_order = t.run_order AND r.id = t.id
    RETURNING r.id, r.epoch, r.attempt, r.step
), from_moved AS (
    DELETE FROM task_ready r USING target t WHERE r.moved AND r.id = t.id AND (r.run_order <> t.run_order OR t.run_order IS NULL)
    RETURNING r.id, r.epoch, r.attempt, r.step
), from_deferred AS (
    DELETE FROM task_deferred d USING target t WHERE d.due_at = t.due_at AND d.id = t.id
    RETURNING d.id, d.epoch, d.attempt, d.step
), ended AS MATERIALIZED (
    SELECT * FROM from_ready UNION ALL SELECT * FROM from_moved UNION ALL SELECT * FROM from_deferred
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, error)
    SELECT id, step, epoch, attempt, 'cancelled', true, nullif($3::text, '') FROM ended
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT t.tenant, t.id, task_life(t.id), 'refund', t.cost FROM ended e JOIN target t ON t.id = e.id WHERE t.cost > 0
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT 'cancelled', t.tenant, t.channel, ARRAY[e.id] FROM ended e JOIN target t ON t.id = e.id
)
SELECT id FROM ended
