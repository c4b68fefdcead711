-- Say who replayed quarantined rows, and when: this is the audit of a replay.
-- $1 bigint[] ids; $2 text actor.
-- Invariant: the first replay with success stays the one that is named.
-- Cost: one index descent per id.
UPDATE collection_quarantine SET replayed_at = now(), replayed_by = $2::text
WHERE quarantine_id = ANY ($1::bigint[]) AND replayed_at IS NULL
