-- Read the record of one observation.
-- $1 uuid; $2 timestamptz, $3 timestamptz: the millisecond that the id names, from inclusive, until exclusive.
-- Returns at most one row.
-- Invariant: the id's time bounds the search to one partition.
-- Cost: one index descent.
SELECT observation_id, observed_at, card_id, account_id, kind, outcome, reading::text AS reading, raw, error, latency_ms,
       traceparent, stored_at
FROM collection_record
WHERE observed_at >= $2::timestamptz AND observed_at < $3::timestamptz AND observation_id = $1::uuid
