-- Read quarantined rows for a replay.
-- $1 bigint[] ids.
-- Returns quarantine_id, source, body and observation_id of those that exist, replayed before or not, in order of id.
-- Invariant: reads one snapshot; a row that was replayed may be replayed again: storing is idempotent.
-- Cost: one index descent per id.
SELECT quarantine_id, source, body, coalesce(observation_id, '') AS observation_id
FROM collection_quarantine
WHERE quarantine_id = ANY ($1::bigint[])
ORDER BY quarantine_id
