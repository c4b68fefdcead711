-- Page through an account's cards by id. $1 text: ids after this one; $2 integer: most rows; $3 boolean: only cards that are
-- to be polled; $4 text account.
-- Cost: one range of card_by_account.
SELECT card_id, card.account_id, msisdn, lifecycle, polling_enabled, network_status, realname_status, cycle_start,
       cycle_used_bytes, applied_count, observed_at, card.updated_at, version
FROM card
JOIN account ON account.account_id = card.account_id
WHERE card.account_id = $4 AND card_id > $1
  AND (NOT $3 OR (polling_enabled AND lifecycle <> 'retired' AND account.enabled))
ORDER BY card_id
LIMIT $2
