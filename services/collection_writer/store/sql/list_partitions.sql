-- List the monthly partitions.
-- Returns name, first_day (date, from the name) and detach_pending, oldest first.
-- Invariant: reads the catalogue only.
-- Cost: one index scan over the parent's children.
SELECT
    child.relname::text AS name,
    to_date(right(child.relname, 7), 'YYYY_MM') AS first_day,
    link.inhdetachpending AS detach_pending
FROM pg_inherits AS link
JOIN pg_class AS child ON child.oid = link.inhrelid
WHERE link.inhparent = 'collection_record'::regclass
  AND child.relname ~ '^collection_record_[0-9]{4}_[0-9]{2}$'
ORDER BY child.relname
