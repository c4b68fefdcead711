-- Read one setting.
-- $1 text: its name.
-- Returns value, actor, updated_at; no row when it was never set.
-- Invariant: reads only.
-- Cost: one index descent.
SELECT value, actor, updated_at FROM poll_setting WHERE name = $1::text
