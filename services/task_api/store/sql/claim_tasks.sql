-- Claim the first tasks of a channel: each gets a lease under a slot that is held already.
-- $1 channel text, $2 kinds text[], $3 newest payload versions int[] (same order), $4 owner text, $5 worker text,
-- $6 slot tokens text[], $7 slot fences bigint[] (same order; as many tasks at most), $8 lease ms bigint,
-- $9 run_order bigint from which to look: a hint that leads past the dead entries of what was claimed before.
-- Returns task_id, epoch, slot_token, slot_fence, run_order and the request, first to run first.
-- Invariant: a task is in task_ready or in task_lease, never in both, so two claims never get the same. Rows that another
-- claim holds are skipped, never waited for. The expiry is the database's clock. No attempt starts after its deadline.
-- Rows of task_ready are never updated, so a locked row's place in the table is its name.
-- Cost per task: one index step, one delete, one insert, one probe of task.
WITH picked AS MATERIALIZED (
    SELECT ctid AS place FROM task_ready
    WHERE channel = $1 AND run_order >= $9
      AND payload_version <= ($3::integer[])[array_position($2::text[], kind)]
      AND (deadline_at IS NULL OR deadline_at > now())
    ORDER BY run_order, id
    LIMIT cardinality($6::text[])
    FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM task_ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM picked)) RETURNING r.*
), numbered AS (
    SELECT t.*, row_number() OVER (ORDER BY t.run_order, t.id) AS place FROM taken t
), found AS MATERIALIZED (
    SELECT n.id, n.epoch + 1 AS epoch, n.attempt + 1 AS attempt, n.step, n.place, n.kind, n.payload_version, n.deadline_at,
           n.ready_at, n.run_order, q.tenant, q.payload, q.priority, q.max_attempts, q.traceparent, q.cost,
           ($6::text[])[n.place] AS slot_token, ($7::bigint[])[n.place] AS slot_fence
    FROM numbered n
    CROSS JOIN LATERAL (
        SELECT t.tenant, t.payload, t.priority, t.max_attempts, t.traceparent, t.cost FROM task t WHERE t.id = n.id OFFSET 0
    ) AS q
), leased AS (
    INSERT INTO task_lease (task_id, owner, epoch, attempt, step, tenant, channel, kind, payload_version, priority,
                            max_attempts, deadline_at, worker, slot_token, slot_fence, lease_until, run_order, cost)
    SELECT id, $4, epoch, attempt, step, tenant, $1, kind, payload_version, priority, max_attempts, deadline_at, $5,
           slot_token, slot_fence, now() + $8::bigint * interval '1 millisecond', run_order, cost
    FROM found
)
SELECT id AS task_id, epoch, slot_token, slot_fence, tenant, kind, payload::text AS payload, payload_version, max_attempts,
       deadline_at, traceparent, run_order, extract(epoch FROM now() - ready_at)::double precision AS waited_seconds
FROM found
ORDER BY place
