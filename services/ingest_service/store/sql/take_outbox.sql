-- Lock events that wait to be published; rows that another relay holds are skipped, so a slow transaction hides nothing.
-- $1 integer: most rows. Inside a transaction that publishes and then marks them.
SELECT outbox_id, event_id, card_id, account_id, event_type, observed_at, observation_id, data::text AS data, traceparent
FROM ingest_outbox
WHERE published_at IS NULL
ORDER BY outbox_id
LIMIT $1
FOR UPDATE SKIP LOCKED
