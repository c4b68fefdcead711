-- Read the weights that are not everybody's.
-- Returns name, weight.
-- Cost: one scan of a small table.
SELECT name, weight FROM task_tenant WHERE weight <> 100
