-- Read quarantined bodies for a replay. $1 bigint[] ids. Those that were replayed already are left out.
SELECT quarantine_id, body FROM ingest_quarantine
WHERE quarantine_id = ANY ($1::bigint[]) AND replayed_at IS NULL
ORDER BY quarantine_id
