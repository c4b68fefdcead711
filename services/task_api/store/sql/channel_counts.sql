-- Count what waits and runs in every channel.
-- Returns name, ready_count, deferred_count, running_count, oldest_ready_ms.
-- Cost: scans task_ready, task_deferred and task_lease: for people, not for hot paths.
SELECT c.name,
       coalesce(r.ready_count, 0) AS ready_count,
       coalesce(d.deferred_count, 0) AS deferred_count,
       coalesce(l.running_count, 0) AS running_count,
       coalesce(r.oldest_ready_ms, 0) AS oldest_ready_ms
FROM channel c
LEFT JOIN (SELECT channel, count(*) AS ready_count,
                  (extract(epoch FROM now() - min(ready_at)) * 1000)::bigint AS oldest_ready_ms
           FROM task_ready GROUP BY channel) r ON r.channel = c.name
LEFT JOIN (SELECT channel, count(*) AS deferred_count FROM task_deferred GROUP BY channel) d ON d.channel = c.name
LEFT JOIN (SELECT channel, count(*) AS running_count FROM task_lease GROUP BY channel) l ON l.channel = c.name
