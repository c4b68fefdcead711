-- Say what is known of one observation. $1 uuid; $2 timestamptz: the instant inside the id.
-- Returns one row; every part is null when nothing is known. Cost: index probes, one inbox partition.
SELECT inbox.card_id, inbox.outcome, inbox.applied_at, inbox.increment_bytes,
       quarantine.card_id AS quarantine_card_id, quarantine.reason AS quarantine_reason, retry.due_at AS retry_at,
       (SELECT array_agg(event_type ORDER BY outbox_id) FROM ingest_outbox WHERE observation_id = $1) AS events
FROM (SELECT 1) AS one
LEFT JOIN ingest_inbox AS inbox ON inbox.observation_id = $1 AND inbox.observed_at = $2
LEFT JOIN LATERAL (
    SELECT card_id, reason FROM ingest_quarantine WHERE observation_id = $1 AND replayed_at IS NULL
    ORDER BY quarantine_id DESC LIMIT 1
) AS quarantine ON true
LEFT JOIN LATERAL (
    SELECT due_at FROM ingest_retry WHERE observation_id = $1 ORDER BY retry_id DESC LIMIT 1
) AS retry ON true
