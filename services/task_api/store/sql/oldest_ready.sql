-- Tell how long the oldest runnable task of a channel has waited.
-- $1 channel text.
-- Returns oldest_ms (0: none waits).
-- Cost: walks the channel's runnable tasks; asked for channels that cap the age alone, which keeps them few.
SELECT coalesce((extract(epoch FROM now() - min(ready_at)) * 1000)::bigint, 0) AS oldest_ms
FROM task_ready WHERE channel = $1
