-- Store collection records that are not there yet.
-- $1 uuid[] observation ids; $2 timestamptz[] observed_at; $3 text[] card ids; $4 text[] account ids; $5 text[] kinds;
-- $6 text[] outcomes; $7 text[] readings as JSON or null; $8 text[] raw answers; $9 text[] errors or null;
-- $10 bigint[] latencies in milliseconds; $11 text[] trace contexts or null. All of one length, sorted by (observed_at, id).
-- Returns nothing; the command tag counts the new rows.
-- Invariant: one row per (observed_at, observation_id), whatever is repeated inside or across batches; the order keeps two
-- writers from deadlocking.
-- Cost: one statement for the batch; per row three index insertions in one partition.
INSERT INTO collection_record (
    observation_id, observed_at, card_id, account_id, kind, outcome, reading, raw, error, latency_ms, traceparent
)
SELECT
    given.observation_id, given.observed_at, given.card_id, given.account_id, given.kind, given.outcome,
    given.reading::jsonb, given.raw, given.error, given.latency_ms, given.traceparent
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::bigint[], $11::text[]
) AS given (
    observation_id, observed_at, card_id, account_id, kind, outcome, reading, raw, error, latency_ms, traceparent
)
ON CONFLICT (observed_at, observation_id) DO NOTHING
