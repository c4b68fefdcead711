-- Say which accounts exist, and keep them from vanishing until the transaction ends. $1 text[] ids.
SELECT account_id FROM account WHERE account_id = ANY ($1::text[]) ORDER BY account_id FOR KEY SHARE
