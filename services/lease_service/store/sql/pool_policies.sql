-- Read every policy of a pool.
-- $1 pool. Returns rows of slot_policy in order of scope. Cost: one range of the primary key.
SELECT pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at, max_waiting,
    max_waiting_per_tenant, tenant_shares
FROM slot_policy
WHERE pool = $1
ORDER BY scope
