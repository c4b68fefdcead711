-- Remember that a longer ttl is about to be granted in a pool.
-- $1 pool, $2 ttl in milliseconds. Returns nothing. Invariant: longest_ttl_ms never falls. Cost: the pool's rows, once per longer ttl.
UPDATE slot_policy SET longest_ttl_ms = $2 WHERE pool = $1 AND longest_ttl_ms < $2
