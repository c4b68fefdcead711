-- Page through accounts by id. $1 text: ids after this one; $2 integer: most rows.
SELECT account_id, name, gateway_kind, gateway_url, credential_name, reset_day, time_zone, poll_interval_s, enabled,
       updated_at
FROM account
WHERE account_id > $1
ORDER BY account_id
LIMIT $2
