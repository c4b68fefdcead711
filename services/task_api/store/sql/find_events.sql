-- Tell which events are stored: what tells a repeated append from one that comes out of order.
-- $1 task_id uuid[], $2 epoch int[], $3 seq bigint[].
-- Returns task_id, epoch, seq of each stored event.
-- Cost: one index probe per event.
SELECT e.task_id, e.epoch, e.seq
FROM unnest($1::uuid[], $2::integer[], $3::bigint[]) AS i (task_id, epoch, seq)
JOIN task_event e USING (task_id, epoch, seq)
