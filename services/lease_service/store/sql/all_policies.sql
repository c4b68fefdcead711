-- Read every policy of every pool. No parameters. Returns rows of slot_policy in order of pool and scope. Cost: the table.
SELECT pool, scope, capacity, max_lifetime_ms, paused, longest_ttl_ms, version, updated_at, max_waiting,
    max_waiting_per_tenant, tenant_shares
FROM slot_policy
ORDER BY pool, scope
