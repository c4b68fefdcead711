-- Page through the quarantine, newest first.
-- $1 bigint: rows before this id; $2 integer: most rows; $3 integer: most bytes of a body.
SELECT quarantine_id, observation_id, card_id, reason, sqlstate, substring(body FOR $3) AS body, quarantined_at,
       replayed_at
FROM ingest_quarantine
WHERE quarantine_id < $1
ORDER BY quarantine_id DESC
LIMIT $2
