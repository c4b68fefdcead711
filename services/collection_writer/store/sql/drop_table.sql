-- Drop a detached month.
-- {partition}: its name, checked to be one that list_partitions or list_detached returned.
-- Invariant: never an attached partition: dropping one would lock the parent against inserts.
-- Cost: ACCESS EXCLUSIVE on the detached table only.
DROP TABLE IF EXISTS {partition}
