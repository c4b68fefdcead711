-- Complete a concurrent detach that was interrupted.
-- {partition}: its name, checked to be one that list_partitions returned.
-- Invariant: afterwards the table is no partition any more.
-- Cost: short locks on the parent and the partition.
ALTER TABLE collection_record DETACH PARTITION {partition} FINALIZE
