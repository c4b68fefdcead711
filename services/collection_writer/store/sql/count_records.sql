-- Count records by outcome in a time range; for reconciliation.
-- $1 timestamptz from, inclusive; $2 timestamptz until, exclusive.
-- Returns outcome, rows.
-- Invariant: counts one snapshot.
-- Cost: reads every row of the range.
SELECT outcome, count(*) AS rows
FROM collection_record
WHERE observed_at >= $1::timestamptz AND observed_at < $2::timestamptz
GROUP BY outcome
