-- Read a task's events after a cursor, in order.
-- $1 task_id uuid, $2 epoch int, $3 seq bigint, $4 limit int.
-- Returns epoch, seq, kind, data.
-- Cost: one partition, one range of the key.
SELECT epoch, seq, kind, data FROM task_event
WHERE task_id = $1 AND (epoch, seq) > ($2::integer, $3::bigint)
ORDER BY epoch, seq
LIMIT $4
