-- Read audit rows, newest first.
-- $1 before bigint (null: from the newest), $2 limit int.
-- Returns audit_id, changed_at, actor, action, subject, reason, before, after.
-- Cost: a range of the key.
SELECT audit_id, changed_at, actor, action, subject, reason, before::text AS before, after::text AS after
FROM task_audit
WHERE $1::bigint IS NULL OR audit_id < $1
ORDER BY audit_id DESC
LIMIT $2
