-- Read every channel's policy.
-- Returns name, concurrency, max_backlog, max_attempts, paused, version.
-- Cost: one scan of a small table.
SELECT name, concurrency, max_backlog, max_attempts, paused, version FROM channel ORDER BY name
