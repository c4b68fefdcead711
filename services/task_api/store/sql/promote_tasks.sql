-- Make deferred tasks runnable that this transaction holds.
-- $1 due_at timestamptz[], $2 id uuid[], $3 run_order bigint[] (same order: their places in the queue).
-- Invariant: a task moves from task_deferred to task_ready in one statement.
-- Cost per task: one probe by key, one delete, one insert.
WITH input AS (
    SELECT * FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[]) AS i (due_at, id, run_order)
), taken AS (
    DELETE FROM task_deferred d USING input i WHERE d.due_at = i.due_at AND d.id = i.id
    RETURNING d.id, d.channel, i.run_order, d.kind, d.payload_version, d.deadline_at, d.epoch, d.attempt, d.step
)
INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step, moved)
SELECT channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step, true FROM taken
