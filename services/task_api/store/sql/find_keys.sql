-- Find the tasks of idempotency keys.
-- $1 tenant text[], $2 idempotency_key text[].
-- Returns tenant, idempotency_key, task_id, request_hash of each key that is taken.
-- Cost: one index probe per key.
SELECT k.tenant, k.idempotency_key, k.task_id, k.request_hash
FROM unnest($1::text[], $2::text[]) AS i (tenant, idempotency_key)
JOIN task_key k USING (tenant, idempotency_key)
