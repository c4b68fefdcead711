-- Read the tenants that have a weight or a quota.
-- Returns name, weight, version, unit_limit, reserved, spent, by name.
-- Cost: one scan of two small tables.
SELECT coalesce(t.name, q.tenant) AS name, coalesce(t.weight, 100) AS weight, coalesce(t.version, 0) AS version, q.unit_limit,
       coalesce(q.reserved, 0) AS reserved, coalesce(q.spent, 0) AS spent
FROM task_tenant t FULL JOIN quota q ON q.tenant = t.name
ORDER BY 1
