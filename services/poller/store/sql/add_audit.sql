-- Note a change of a setting.
-- $1 text name; $2 text previous value; $3 text value; $4 text actor; $5 text reason.
-- Returns nothing.
-- Invariant: rows are only added.
-- Cost: one row.
INSERT INTO poll_audit (name, previous, value, actor, reason)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text)
