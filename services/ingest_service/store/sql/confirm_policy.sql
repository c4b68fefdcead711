-- Forget a request that lease_service has confirmed, unless it was replaced meanwhile.
-- $1 text account, $2 text scope, $3 uuid request id.
DELETE FROM account_policy_request WHERE account_id = $1 AND scope = $2 AND request_id = $3
