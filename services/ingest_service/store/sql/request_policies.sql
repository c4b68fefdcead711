-- Remember the capacities that lease_service has to store; a newer request replaces an older one.
-- $1 text[] accounts, $2 text[] scopes, $3 integer[] capacities, $4 text actor, $5 uuid request id, $6 timestamptz now.
INSERT INTO account_policy_request (account_id, scope, capacity, actor, request_id, requested_at)
SELECT given.*, $4, $5::uuid, $6::timestamptz
FROM unnest($1::text[], $2::text[], $3::integer[]) AS given
ON CONFLICT (account_id, scope) DO UPDATE
SET capacity = excluded.capacity, actor = excluded.actor, request_id = excluded.request_id,
    requested_at = excluded.requested_at
