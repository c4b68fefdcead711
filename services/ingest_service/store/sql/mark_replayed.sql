-- Say who replayed quarantined rows, and when: this is the audit of a replay.
-- $1 bigint[] ids; $2 text actor; $3 timestamptz now.
UPDATE ingest_quarantine SET replayed_at = $3, replayed_by = $2
WHERE quarantine_id = ANY ($1::bigint[]) AND replayed_at IS NULL
