-- List the capacities that lease_service has not confirmed, oldest first. $1 text[] accounts, or null for all; $2 most rows.
SELECT account_id, scope, capacity, actor, request_id
FROM account_policy_request
WHERE $1::text[] IS NULL OR account_id = ANY ($1::text[])
ORDER BY requested_at, account_id, scope
LIMIT $2
