-- Collection records of one account in a time range, in order, for a server-side cursor.
-- $1 account_id text; $2 from timestamptz, inclusive; $3 until timestamptz, exclusive.
-- Returns one row per record. Reads only partitions of the range; cost O(rows of the account in it).
SELECT observed_at, observation_id::text AS observation_id, card_id, kind, outcome,
       reading::text AS reading, error, latency_ms, stored_at
FROM report.collection_record_v1
WHERE account_id = $1 AND observed_at >= $2 AND observed_at < $3
ORDER BY observed_at, observation_id
