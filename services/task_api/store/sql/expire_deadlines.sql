-- End waiting tasks whose deadline has passed: no attempt starts after it.
-- $1 limit int.
-- Returns id, channel of each ended task.
-- Invariant: as cancel_waiting. Rows that a claim or a promoter holds are skipped until the next round.
-- Cost: a range of two partial indexes; per task one delete and one insert.
WITH late_ready AS MATERIALIZED (
    SELECT ctid AS place FROM task_ready WHERE deadline_at <= now()
    ORDER BY deadline_at LIMIT $1 FOR UPDATE SKIP LOCKED
), late_deferred AS MATERIALIZED (
    SELECT ctid AS place FROM task_deferred WHERE deadline_at <= now()
    ORDER BY deadline_at LIMIT $1 FOR UPDATE SKIP LOCKED
), from_ready AS (
    DELETE FROM task_ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM late_ready))
    RETURNING r.id, r.channel, r.epoch, r.attempt, r.step
), from_deferred AS (
    DELETE FROM task_deferred d WHERE d.ctid = ANY (ARRAY(SELECT place FROM late_deferred))
    RETURNING d.id, d.channel, d.epoch, d.attempt, d.step
), ended AS MATERIALIZED (
    SELECT * FROM from_ready UNION ALL SELECT * FROM from_deferred
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, error_class, error)
    SELECT id, step, epoch, attempt, 'failed', true, 'permanent', 'the deadline passed before an attempt could start'
    FROM ended
), billed AS MATERIALIZED (
    SELECT e.id, e.channel, t.tenant, t.cost FROM ended e JOIN task t ON t.id = e.id
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, id, task_life(id), 'refund', cost FROM billed WHERE cost > 0
    ORDER BY tenant, id
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT 'failed', tenant, channel, array_agg(id) FROM billed GROUP BY 1, tenant, channel
)
SELECT id, channel FROM ended
