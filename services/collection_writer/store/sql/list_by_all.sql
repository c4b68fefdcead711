-- Page through the records of everything, newest first.
-- $1 timestamptz from, inclusive; $2 timestamptz until, exclusive; $3 timestamptz, $4 uuid: the last row of the page
-- before, exclusive (the far future for the first page); $5 integer: most rows.
-- Returns rows in falling order of (observed_at, observation_id).
-- Invariant: keyset paging: rows that arrive meanwhile never shift a page.
-- Cost: one ordered index scan per partition in the range, stopped at the limit.
SELECT observation_id, observed_at, card_id, account_id, kind, outcome, reading::text AS reading, raw, error, latency_ms,
       traceparent, stored_at
FROM collection_record
WHERE observed_at >= $1::timestamptz AND observed_at < $2::timestamptz
  AND (observed_at, observation_id) < ($3::timestamptz, $4::uuid)
ORDER BY observed_at DESC, observation_id DESC
LIMIT $5::integer
