-- Store tasks in bulk; a task whose idempotency key is taken is left out.
-- $1 id uuid[], $2 tenant text[], $3 channel text[], $4 kind text[], $5 payload text[] (JSON), $6 payload_version int[],
-- $7 priority int[], $8 max_attempts int[], $9 idempotency_key text[] (null: none), $10 request_hash bytea[],
-- $11 delay_ms bigint[] (0: none), $12 deadline_at timestamptz[] (null: none), $13 traceparent text[].
-- Returns id, due_at, created_at of each stored task.
-- Invariant: key, request and place in the queue are stored together or not at all. Keys are taken in order: no deadlocks.
-- Cost: one insert into task, one into task_ready or task_deferred, one into task_key for tasks with a key.
WITH input AS (
    SELECT i.*, CASE WHEN i.delay_ms > 0 THEN now() + i.delay_ms * interval '1 millisecond' END AS due_at
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::integer[], $8::integer[],
                $9::text[], $10::bytea[], $11::bigint[], $12::timestamptz[], $13::text[])
        AS i (id, tenant, channel, kind, payload, payload_version, priority, max_attempts, idempotency_key, request_hash,
              delay_ms, deadline_at, traceparent)
), keyed AS (
    INSERT INTO task_key (tenant, idempotency_key, task_id, request_hash)
    SELECT tenant, idempotency_key, id, request_hash FROM input WHERE idempotency_key IS NOT NULL
    ORDER BY tenant, idempotency_key, id
    ON CONFLICT DO NOTHING
    RETURNING task_id
), fresh AS (
    SELECT i.*, task_run_order(coalesce(i.due_at, now()), i.priority) AS run_order
    FROM input i
    WHERE i.idempotency_key IS NULL OR i.id IN (SELECT task_id FROM keyed)
), stored AS (
    INSERT INTO task (id, tenant, channel, kind, payload, payload_version, priority, max_attempts, run_order, idempotency_key,
                      due_at, deadline_at, traceparent)
    SELECT id, tenant, channel, kind, payload::json, payload_version, priority, max_attempts, run_order, idempotency_key,
           due_at, deadline_at, traceparent
    FROM fresh
    RETURNING id, due_at, created_at
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT channel, run_order, id, kind, payload_version, deadline_at, 0, 0, 1 FROM fresh WHERE due_at IS NULL
), deferred AS (
    INSERT INTO task_deferred (due_at, id, channel, run_order, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT due_at, id, channel, run_order, kind, payload_version, deadline_at, 0, 0, 1 FROM fresh WHERE due_at IS NOT NULL
)
SELECT id, due_at, created_at FROM stored
