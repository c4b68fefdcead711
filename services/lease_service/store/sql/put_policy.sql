-- Store one policy. Run it under lock_pool, in the same transaction.
-- $1 pool, $2 scope, $3 capacity, $4 max_lifetime_ms, $5 paused, $6 longest_ttl_ms, $7 version: greater than any of the pool,
-- $8 max_waiting, $9 max_waiting_per_tenant, $10 tenant_shares as JSON text.
-- Returns the stored row. Cost: one row.
INSERT INTO slot_policy (pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at, max_waiting,
    max_waiting_per_tenant, tenant_shares)
VALUES ($1, $2, $3, $4, $5, $6, $7, now(), $8, $9, $10::text::jsonb)
ON CONFLICT (pool, scope) DO UPDATE
SET capacity = excluded.capacity, max_lifetime_ms = excluded.max_lifetime_ms, paused = excluded.paused,
    version = excluded.version, updated_at = excluded.updated_at, max_waiting = excluded.max_waiting,
    max_waiting_per_tenant = excluded.max_waiting_per_tenant, tenant_shares = excluded.tenant_shares
RETURNING pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at, max_waiting,
    max_waiting_per_tenant, tenant_shares
