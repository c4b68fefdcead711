-- List monthly tables that were detached and not dropped yet: a previous retention run was interrupted between the two.
-- Returns name and first_day (date, from the name).
-- Invariant: reads the catalogue only; a table that another session is just attaching is invisible until it is a partition.
-- Cost: one scan over the schema's tables by name.
SELECT
    class.relname::text AS name,
    to_date(right(class.relname, 7), 'YYYY_MM') AS first_day
FROM pg_class AS class
WHERE class.relkind = 'r'
  AND class.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'collection_record'::regclass)
  AND class.relname ~ '^collection_record_[0-9]{4}_[0-9]{2}$'
  AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = class.oid)
