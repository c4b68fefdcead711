-- Take the oldest rows of the outbox; committed once they are relayed.
-- $1 limit int.
-- Returns task_id, event, tenant, channel in order; also what an older version has left in its own table.
-- Invariant: rows that another relay holds are skipped.
-- Cost: a range of two keys from their starts; one delete per row.
WITH taken AS (
    DELETE FROM task_outbox_batch o USING (
        SELECT outbox_id FROM task_outbox_batch ORDER BY outbox_id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) AS p
    WHERE o.outbox_id = p.outbox_id
    RETURNING o.*
), older AS (
    DELETE FROM task_outbox o USING (
        SELECT outbox_id FROM task_outbox ORDER BY outbox_id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) AS p
    WHERE o.outbox_id = p.outbox_id
    RETURNING o.*
)
SELECT task_id, event, tenant, channel FROM (
    SELECT 0 AS rank, outbox_id, task_id, event, tenant, channel FROM older
    UNION ALL
    SELECT 1, outbox_id, unnest(task_ids), event, tenant, channel FROM taken
) AS news
ORDER BY rank, outbox_id
