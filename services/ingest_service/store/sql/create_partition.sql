-- Make sure that the inbox has a partition for a day.
-- $1 date (UTC). Returns whether it was created. Waits for others that create the same day.
SELECT ingest_create_partition($1::date)
