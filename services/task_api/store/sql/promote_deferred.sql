-- Make tasks runnable whose time has come.
-- $1 limit int.
-- Returns id, channel of each promoted task.
-- Invariant: a task moves from task_deferred to task_ready in one statement. Rows that another promoter holds are skipped.
-- Cost: a range of the key from its start; per task one delete and one insert.
WITH due AS MATERIALIZED (
    SELECT ctid AS place FROM task_deferred
    WHERE due_at <= now()
    ORDER BY due_at, id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM task_deferred d WHERE d.ctid = ANY (ARRAY(SELECT place FROM due)) RETURNING d.*
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step FROM taken
)
SELECT id, channel FROM taken
