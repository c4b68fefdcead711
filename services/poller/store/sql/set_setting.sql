-- Store one setting.
-- $1 text name; $2 text value; $3 text actor.
-- Returns nothing.
-- Invariant: one row per name; the caller writes the audit row in the same transaction.
-- Cost: one row.
INSERT INTO poll_setting (name, value, actor) VALUES ($1::text, $2::text, $3::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, actor = excluded.actor, updated_at = now()
