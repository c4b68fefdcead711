-- Read a tenant's ledger, newest first.
-- $1 tenant text, $2 before bigint (null: from the newest), $3 limit int.
-- Returns entry_id, task_id, life, kind, amount, created_at.
-- Cost: a range of an index.
SELECT entry_id, task_id, life, kind, amount, created_at
FROM ledger_entry
WHERE tenant = $1 AND ($2::bigint IS NULL OR entry_id < $2)
ORDER BY entry_id DESC
LIMIT $3
