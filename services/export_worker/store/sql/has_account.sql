-- Whether an account exists.
-- $1 account_id text.
-- Returns one boolean. Cost O(log accounts).
SELECT EXISTS (SELECT 1 FROM report.account_v1 WHERE account_id = $1)
