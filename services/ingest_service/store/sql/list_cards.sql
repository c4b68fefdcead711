-- Page through all cards by id. $1 text: ids after this one; $2 integer: most rows; $3 boolean: only cards that are to be polled.
-- Cost: one index range; cards that are not to be polled are stepped over.
SELECT card_id, card.account_id, msisdn, lifecycle, polling_enabled, network_status, realname_status, cycle_start,
       cycle_used_bytes, applied_count, observed_at, card.updated_at, version
FROM card
JOIN account ON account.account_id = card.account_id
WHERE card_id > $1 AND (NOT $3 OR (polling_enabled AND lifecycle <> 'retired' AND account.enabled))
ORDER BY card_id
LIMIT $2
