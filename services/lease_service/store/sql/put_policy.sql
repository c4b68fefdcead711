-- Store one policy. Run it under lock_pool, in the same transaction.
-- $1 pool, $2 scope, $3 capacity, $4 max_lifetime_ms, $5 paused, $6 longest_ttl_ms, $7 version: greater than any of the pool.
-- Returns the stored row. Cost: one row.
INSERT INTO slot_policy (pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now())
ON CONFLICT (pool, scope) DO UPDATE
SET capacity = excluded.capacity, max_lifetime_ms = excluded.max_lifetime_ms, paused = excluded.paused,
    version = excluded.version, updated_at = excluded.updated_at
RETURNING pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at
