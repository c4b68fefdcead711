-- Write down who changed accounts. $1 text[] accounts, $2 text actor, $3 text action, $4 text[] details (JSON), $5 timestamptz.
INSERT INTO account_audit (account_id, actor, action, detail, audited_at)
SELECT given.account_id, $2, $3, given.detail::jsonb, $5::timestamptz
FROM unnest($1::text[], $4::text[]) AS given (account_id, detail)
