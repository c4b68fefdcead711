-- Write down who changed cards. $1 text[] cards, $2 text actor, $3 text action, $4 text[] details (JSON), $5 timestamptz.
INSERT INTO card_audit (card_id, actor, action, detail, audited_at)
SELECT given.card_id, $2, $3, given.detail::jsonb, $5::timestamptz
FROM unnest($1::text[], $4::text[]) AS given (card_id, detail)
