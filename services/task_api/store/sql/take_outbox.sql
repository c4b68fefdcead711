-- Take the oldest rows of the outbox; committed once they are relayed.
-- $1 limit int.
-- Returns task_id, event, tenant, channel in order.
-- Invariant: rows that another relay holds are skipped.
-- Cost: a range of the key from its start; one delete per row.
WITH taken AS (
    DELETE FROM task_outbox o USING (
        SELECT outbox_id FROM task_outbox ORDER BY outbox_id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) AS p
    WHERE o.outbox_id = p.outbox_id
    RETURNING o.*
)
SELECT task_id, event, tenant, channel FROM taken ORDER BY outbox_id
