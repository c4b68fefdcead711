-- List tables that were partitions of the inbox and are not any more. Returns name.
SELECT relation.relname AS name
FROM pg_class AS relation
WHERE relation.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'ingest_inbox'::regclass)
  AND relation.relkind = 'r'
  AND relation.relname ~ '^ingest_inbox_[0-9]{4}_[0-9]{2}_[0-9]{2}$'
  AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = relation.oid)
ORDER BY relation.relname
