-- Detach one partition without blocking inserts; outside any transaction.
-- {partition}: its name, checked to be one that list_partitions returned.
-- Invariant: rows stay in the detached table until it is dropped. An interrupted run leaves "detach pending": see finalize.
-- Cost: SHARE UPDATE EXCLUSIVE on the parent; waits for statements that were running.
ALTER TABLE collection_record DETACH PARTITION {partition} CONCURRENTLY
