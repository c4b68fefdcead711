-- Create or change a channel and write the audit row.
-- $1 name text, $2 concurrency int, $3 max_backlog int, $4 max_attempts int, $5 paused bool, $6 actor text, $7 reason text,
-- $8 max_age_ms bigint.
-- Returns the channel as stored.
-- Invariant: no change without its audit row.
-- Cost: two inserts.
WITH earlier AS (
    SELECT to_json(c) AS body FROM channel c WHERE c.name = $1
), saved AS (
    INSERT INTO channel AS c (name, concurrency, max_backlog, max_attempts, paused, max_age_ms)
    VALUES ($1, $2, $3, $4, $5, $8)
    ON CONFLICT (name) DO UPDATE
        SET concurrency = $2, max_backlog = $3, max_attempts = $4, paused = $5, max_age_ms = $8,
            version = c.version + 1, updated_at = now()
    RETURNING c.*
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason, before, after)
    SELECT $6, 'channel.save', $1, $7, (SELECT body FROM earlier), to_json(s) FROM saved s
)
SELECT name, concurrency, max_backlog, max_attempts, paused, version, max_age_ms FROM saved
