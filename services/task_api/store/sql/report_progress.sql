-- Store the progress of held claims.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 percent int[], $5 message text[].
-- Returns task_id, owner, epoch of each held claim.
-- Invariant: nothing is written once the claim is lost or expired. Rows are locked in order of their ids.
-- Cost: one heap-only update per task.
WITH held AS MATERIALIZED (
    SELECT l.task_id, i.percent, i.message
    FROM task_lease l
    JOIN unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::text[])
        AS i (task_id, owner, epoch, percent, message) USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
)
UPDATE task_lease l SET progress_percent = h.percent, progress_message = h.message
FROM held h
WHERE l.task_id = h.task_id
RETURNING l.task_id, l.owner, l.epoch
