-- Set a tenant's weight and quota and write the audit row.
-- $1 name text, $2 weight int, $3 unit_limit bigint (null: none), $4 actor text, $5 reason text.
-- Returns name, weight, version, unit_limit, reserved, spent.
-- Invariant: no change without its audit row.
-- Cost: three inserts.
WITH earlier AS (
    SELECT json_build_object('weight', t.weight, 'quota', q.unit_limit) AS body
    FROM (SELECT 1) one
    LEFT JOIN task_tenant t ON t.name = $1
    LEFT JOIN quota q ON q.tenant = $1
    WHERE t.name IS NOT NULL OR q.tenant IS NOT NULL
), saved AS (
    INSERT INTO task_tenant AS t (name, weight) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET weight = $2, version = t.version + 1, updated_at = now()
    RETURNING t.name, t.weight, t.version
), bounded AS (
    INSERT INTO quota AS q (tenant, unit_limit) VALUES ($1, $3)
    ON CONFLICT (tenant) DO UPDATE SET unit_limit = $3
    RETURNING q.unit_limit, q.reserved, q.spent
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason, before, after)
    SELECT $4, 'tenant.save', $1, $5, (SELECT body FROM earlier), json_build_object('weight', $2, 'quota', $3)
)
SELECT s.name, s.weight, s.version, b.unit_limit, b.reserved, b.spent FROM saved s CROSS JOIN bounded b
