-- Extend claims that are still held.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 lease ms bigint.
-- Returns task_id, owner, epoch, slot_token, remaining_ms, cancel_requested of each extended claim.
-- Invariant: an expired claim is never revived. Rows are locked in order of their ids.
-- Cost: one heap-only update per claim.
WITH held AS MATERIALIZED (
    SELECT l.task_id FROM task_lease l
    JOIN unnest($1::uuid[], $2::text[], $3::integer[]) AS i (task_id, owner, epoch) USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
)
UPDATE task_lease l SET lease_until = now() + $4::bigint * interval '1 millisecond'
WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM held))
RETURNING l.task_id, l.owner, l.epoch, l.slot_token, $4::bigint AS remaining_ms, l.cancel_requested
