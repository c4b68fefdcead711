-- Read every channel's policy.
-- Returns name, concurrency, max_backlog, max_attempts, paused, version, max_age_ms.
-- Cost: one scan of a small table.
SELECT name, concurrency, max_backlog, max_attempts, paused, version, max_age_ms FROM channel ORDER BY name
