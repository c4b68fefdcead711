-- Stop or allow new attempts of a channel and write the audit row.
-- $1 name text, $2 paused bool, $3 actor text, $4 reason text.
-- Returns the channel as stored; no row when there is none of that name.
-- Invariant: no change without its audit row.
-- Cost: one update, one insert.
WITH earlier AS (
    SELECT to_json(c) AS body FROM channel c WHERE c.name = $1
), saved AS (
    UPDATE channel SET paused = $2, version = version + 1, updated_at = now() WHERE name = $1
    RETURNING *
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason, before, after)
    SELECT $3, CASE WHEN $2 THEN 'channel.pause' ELSE 'channel.resume' END, $1, $4, (SELECT body FROM earlier), to_json(s)
    FROM saved s
)
SELECT name, concurrency, max_backlog, max_attempts, paused, version, max_age_ms FROM saved
