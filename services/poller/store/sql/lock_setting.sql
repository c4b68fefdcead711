-- Read one setting for changing it.
-- $1 text: its name.
-- Returns value; no row when it was never set.
-- Invariant: two changes of one setting follow each other, so the audit's "previous" is true.
-- Cost: one index descent and a row lock until the transaction ends.
SELECT value FROM poll_setting WHERE name = $1::text FOR UPDATE
