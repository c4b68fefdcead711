-- Read the key for tickets. No parameters. Returns key. Cost: one row.
SELECT key FROM slot_ticket_key
