-- Page through the quarantine, newest first.
-- $1 bigint: rows before this id; $2 integer: most rows; $3 integer: most bytes of a body.
-- Returns rows in falling order of quarantine_id.
-- Invariant: keyset paging: rows that arrive meanwhile never shift a page.
-- Cost: one ordered index scan, stopped at the limit.
SELECT quarantine_id, source, coalesce(observation_id, '') AS observation_id, coalesce(card_id, '') AS card_id, reason,
       coalesce(sqlstate, '') AS sqlstate, substring(body FOR $3::integer) AS body, quarantined_at, replayed_at, seen_count
FROM collection_quarantine
WHERE quarantine_id < $1::bigint
ORDER BY quarantine_id DESC
LIMIT $2::integer
