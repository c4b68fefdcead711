-- Take a partition out of the inbox without blocking inserts into the others. {name}: its quoted name.
-- Outside any transaction.
ALTER TABLE ingest_inbox DETACH PARTITION {name} CONCURRENTLY
