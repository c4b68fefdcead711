-- End waiting tasks whose deadline has passed: no attempt starts after it.
-- $1 limit int.
-- Returns id, channel of each ended task.
-- Invariant: as cancel_waiting. Rows that a claim or a promoter holds are skipped until the next round.
-- Cost: a range of two partial indexes; per task one delete and three inserts.
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
), event AS (
    INSERT INTO task_event (task_id, epoch, seq, kind, data)
    SELECT id, epoch, 9007199254740991, 'end', '{"state":"failed","error":"the deadline passed before an attempt could start"}'
    FROM ended
), outbox AS (
    INSERT INTO task_outbox (task_id, event, tenant, channel)
    SELECT e.id, 'failed', t.tenant, e.channel FROM ended e JOIN task t ON t.id = e.id
)
SELECT id, channel FROM ended
