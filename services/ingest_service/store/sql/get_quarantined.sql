-- Read quarantined bodies for a replay. $1 bigint[] ids. Those that don't exist are left out; `replayed` says that a replay had
-- success before.
SELECT quarantine_id, body, replayed_at IS NOT NULL AS replayed FROM ingest_quarantine
WHERE quarantine_id = ANY ($1::bigint[])
ORDER BY quarantine_id
