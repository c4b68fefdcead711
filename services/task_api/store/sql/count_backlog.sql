-- Count the waiting tasks of a channel, up to a limit.
-- $1 channel text, $2 limit int.
-- Returns backlog_count (ready and deferred together, each counted up to the limit).
-- Cost: an index-only walk of at most the limit, and a scan of task_deferred.
SELECT (SELECT count(*) FROM (SELECT FROM task_ready WHERE channel = $1 LIMIT $2) r)
     + (SELECT count(*) FROM (SELECT FROM task_deferred WHERE channel = $1 LIMIT $2) d) AS backlog_count
