-- Forget a message that has been applied, or is in quarantine. $1 bigint id.
DELETE FROM ingest_retry WHERE retry_id = $1
