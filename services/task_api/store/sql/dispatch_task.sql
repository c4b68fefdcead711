-- Put a waiting task before all others of its channel and write the audit row.
-- $1 id uuid, $2 actor text, $3 reason text.
-- Returns id, channel; no row when the task does not wait.
-- Invariant: a task moves in one statement; a claim or a promotion that takes it first wins.
-- Cost: probes by key; one delete, two inserts.
WITH target AS MATERIALIZED (
    SELECT t.id, t.channel,
           CASE WHEN o.step IS NULL THEN t.run_order ELSE o.run_order END AS run_order,
           CASE WHEN o.step IS NULL THEN t.due_at ELSE o.due_at END AS due_at,
           (SELECT r.run_order - 1 FROM task_ready r WHERE r.channel = t.channel ORDER BY r.run_order LIMIT 1) AS first_order
    FROM task t
    LEFT JOIN LATERAL (SELECT * FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
    WHERE t.id = $1
), from_ready AS (
    DELETE FROM task_ready r USING target t
    WHERE (r.channel = t.channel AND r.run_order = t.run_order AND r.id = t.id) OR (r.moved AND r.id = t.id)
    RETURNING r.id, r.channel, r.kind, r.payload_version, r.deadline_at, r.epoch, r.attempt, r.step
), from_deferred AS (
    DELETE FROM task_deferred d USING target t WHERE d.due_at = t.due_at AND d.id = t.id
    RETURNING d.id, d.channel, d.kind, d.payload_version, d.deadline_at, d.epoch, d.attempt, d.step
), taken AS MATERIALIZED (
    SELECT * FROM from_ready UNION ALL SELECT * FROM from_deferred
), placed AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step, moved)
    SELECT k.channel, coalesce(t.first_order, 0), k.id, k.kind, k.payload_version, k.deadline_at, k.epoch, k.attempt, k.step,
           true
    FROM taken k JOIN target t ON t.id = k.id
    RETURNING id, channel
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason) SELECT $2, 'task.dispatch', id::text, $3 FROM placed
)
SELECT id, channel FROM placed
