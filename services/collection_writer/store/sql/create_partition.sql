-- Create the partition of one UTC month.
-- $1 date: any day of the month.
-- Returns true when it was created, false when it was there.
-- Invariant: exactly one of several concurrent callers creates it; inserts into other partitions go on.
-- Cost: an advisory lock until the transaction ends; SHARE UPDATE EXCLUSIVE on the parent while attaching.
SELECT collection_create_partition($1::date)
