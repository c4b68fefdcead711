-- Forget a model's route and write the audit row.
-- $1 model text, $2 actor text, $3 reason text.
-- Returns model; no row when there was none.
-- Cost: one delete, one insert.
WITH gone AS (
    DELETE FROM route WHERE model = $1 RETURNING *
), audited AS (
    INSERT INTO task_audit (actor, action, subject, reason, before)
    SELECT $2, 'route.delete', $1, $3, to_json(g) FROM gone g
)
SELECT model FROM gone
