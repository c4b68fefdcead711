-- Keep a key for tickets unless there is one.
-- $1 32 random bytes. Returns nothing. Invariant: the first key stays. Cost: one row.
INSERT INTO slot_ticket_key (key) VALUES ($1) ON CONFLICT DO NOTHING
