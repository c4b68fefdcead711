-- Find a tenant's tasks for a bulk change, oldest first.
-- $1 tenant text, $2 channel text (empty: all), $3 kind text (empty: all), $4 created_from timestamptz (null: no bound),
-- $5 created_before timestamptz (null: no bound), $6 ended bool (true: failed or cancelled; false: not ended),
-- $7 after uuid (null: from the oldest), $8 limit int.
-- Returns id.
-- Cost: walks the tenant's tasks of that time until the limit; the statement's time limit ends a rare search.
SELECT t.id
FROM task t
LEFT JOIN LATERAL (SELECT terminal, outcome FROM task_outcome WHERE task_id = t.id ORDER BY step DESC LIMIT 1) o ON true
WHERE t.tenant = $1 AND ($2 = '' OR t.channel = $2) AND ($3 = '' OR t.kind = $3)
  AND ($4::timestamptz IS NULL OR t.id >= task_first_id($4)) AND ($5::timestamptz IS NULL OR t.id < task_first_id($5))
  AND ($7::uuid IS NULL OR t.id > $7)
  AND CASE WHEN $6 THEN coalesce(o.terminal AND o.outcome <> 'succeeded', false) ELSE NOT coalesce(o.terminal, false) END
ORDER BY t.id
LIMIT $8
