-- Let one change of a pool's policies happen at a time; released at the end of the transaction.
-- $1 pool. Returns nothing of use. Invariant: versions of a pool are committed in their order. Cost: one advisory lock.
SELECT pg_advisory_xact_lock(hashtextextended('slot_policy:' || $1, 0))
