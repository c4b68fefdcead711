-- List the pools. No parameters. Returns names in order. Cost: the index.
SELECT DISTINCT pool FROM slot_policy ORDER BY pool
