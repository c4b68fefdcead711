-- List the inbox's partitions by name; the day is in the name. Returns name, detach_pending.
SELECT child.relname AS name, inherits.inhdetachpending AS detach_pending
FROM pg_inherits AS inherits
JOIN pg_class AS child ON child.oid = inherits.inhrelid
WHERE inherits.inhparent = 'ingest_inbox'::regclass
ORDER BY child.relname
