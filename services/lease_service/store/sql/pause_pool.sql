-- Stop or allow new grants of a pool. Run it under lock_pool, in the same transaction.
-- $1 pool, $2 paused, $3 version: greater than any of the pool.
-- Returns the rows that changed; rows that already are as asked stay untouched. Cost: the pool's rows.
UPDATE slot_policy
SET paused = $2, version = $3, updated_at = now()
WHERE pool = $1 AND paused <> $2
RETURNING pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at, max_waiting,
    max_waiting_per_tenant, tenant_shares
