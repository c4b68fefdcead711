-- Store tasks in bulk; a task whose idempotency key is taken is left out, one that its tenant's quota can't bear is refused.
-- $1 id uuid[], $2 tenant text[], $3 channel text[], $4 kind text[], $5 payload text[] (JSON), $6 payload_version int[],
-- $7 priority int[], $8 max_attempts int[], $9 idempotency_key text[] (null: none), $10 request_hash bytea[],
-- $11 delay_ms bigint[] (0: none), $12 deadline_at timestamptz[] (null: none), $13 traceparent text[],
-- $14 run_order bigint[] (place in the queue; of no use for tasks with a delay), $15 cost bigint[] (0: none).
-- Returns id, due_at, created_at, refused of each task that is stored (refused false) or over its quota (refused true).
-- Invariant: key, request, place in the queue and reservation are stored together or not at all. Quotas are locked in order
-- and judged under their locks: racing creations never exceed one. Keys are taken in order: no
-- deadlocks; the first of several tasks with one key is stored.
-- Cost: one insert into task, one into task_ready or task_deferred; one into task_key for tasks with a key, one into
-- ledger_entry for tasks with a cost.
WITH input AS (
    SELECT i.*, CASE WHEN i.delay_ms > 0 THEN now() + i.delay_ms * interval '1 millisecond' END AS due_at
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::integer[], $8::integer[],
                $9::text[], $10::bytea[], $11::bigint[], $12::timestamptz[], $13::text[], $14::bigint[], $15::bigint[])
        WITH ORDINALITY AS i (id, tenant, channel, kind, payload, payload_version, priority, max_attempts, idempotency_key, request_hash,
              delay_ms, deadline_at, traceparent, run_order, cost, place)
), limited AS MATERIALIZED (
    SELECT q.tenant, q.unit_limit - q.reserved - q.spent AS left_units FROM quota q
    WHERE q.unit_limit IS NOT NULL AND q.tenant IN (SELECT tenant FROM input WHERE cost > 0)
    ORDER BY q.tenant
    FOR UPDATE
), over AS MATERIALIZED (
    SELECT p.id
    FROM (SELECT id, tenant, sum(cost) OVER (PARTITION BY tenant ORDER BY place) AS running FROM input WHERE cost > 0) p
    JOIN limited l USING (tenant)
    WHERE p.running > l.left_units
), accepted AS (
    SELECT * FROM input i WHERE NOT EXISTS (SELECT FROM over o WHERE o.id = i.id)
), keyed AS (
    INSERT INTO task_key (tenant, idempotency_key, task_id, request_hash)
    SELECT tenant, idempotency_key, id, request_hash FROM accepted WHERE idempotency_key IS NOT NULL
    ORDER BY tenant, idempotency_key, place
    ON CONFLICT DO NOTHING
    RETURNING task_id
), fresh AS (
    SELECT a.* FROM accepted a WHERE a.idempotency_key IS NULL OR a.id IN (SELECT task_id FROM keyed)
), stored AS (
    INSERT INTO task (id, tenant, channel, kind, payload, payload_version, priority, max_attempts, run_order, idempotency_key,
                      due_at, deadline_at, traceparent, cost)
    SELECT id, tenant, channel, kind, payload::json, payload_version, priority, max_attempts, run_order, idempotency_key,
           due_at, deadline_at, traceparent, nullif(cost, 0)
    FROM fresh
    RETURNING id, due_at, created_at
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT channel, run_order, id, kind, payload_version, deadline_at, 0, 0, 1 FROM fresh WHERE due_at IS NULL
), deferred AS (
    INSERT INTO task_deferred (due_at, id, channel, run_order, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT due_at, id, channel, run_order, kind, payload_version, deadline_at, 0, 0, 1 FROM fresh WHERE due_at IS NOT NULL
), reserved AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, id, 1, 'reserve', cost FROM fresh WHERE cost > 0 ORDER BY tenant, id
)
SELECT id, due_at, created_at, false AS refused FROM stored
UNION ALL
SELECT id, NULL, NULL, true FROM over
