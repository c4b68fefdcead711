-- Set a model's route and write the audit row.
-- $1 model text, $2 channel text, $3 version bigint (0: change whatever is there), $4 actor text, $5 reason text.
-- Returns model, channel, version as stored; no row when the version is not the stored one.
-- Invariant: no change without its audit row; of two changes from one version one is stored.
-- Cost: two inserts.
WITH earlier AS (
    SELECT to_json(r) AS body FROM route r WHERE r.model = $1
), saved AS (
    INSERT INTO route AS r (model, channel) SELECT $1, $2 WHERE $3 = 0 OR EXISTS (SELECT FROM earlier)
    ON CONFLICT (model) DO UPDATE SET channel = $2, version = r.version + 1, updated_at = now()
        WHERE $3::bigint = 0 OR r.version = $3
    RETURNING r.model, r.channel, r.version
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason, before, after)
    SELECT $4, 'route.save', $1, $5, (SELECT body FROM earlier), to_json(s) FROM saved s
)
SELECT model, channel, version FROM saved
