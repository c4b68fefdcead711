-- Store the progress of held claims.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 percent int[], $5 message text[], $6 seq bigint[] (0: no event).
-- A claim is named once. Returns task_id, owner, epoch of each held claim.
-- Invariant: nothing is written once the claim is lost or expired. Rows are locked in order of their ids. An event is stored
-- only above all stored ones, as for text; a repeated one is stored once.
-- Cost: one heap-only update per task; one insert per event.
WITH held AS MATERIALIZED (
    SELECT l.task_id, l.epoch, l.last_seq, i.percent, i.message, i.seq
    FROM task_lease l
    JOIN unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::text[], $6::bigint[])
        AS i (task_id, owner, epoch, percent, message, seq) USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
), event AS (
    INSERT INTO task_event (task_id, epoch, seq, kind, data)
    SELECT task_id, epoch, seq, 'progress', json_build_object('percent', percent, 'message', message)::text
    FROM held WHERE seq > last_seq
)
UPDATE task_lease l
SET progress_percent = h.percent, progress_message = h.message, last_seq = greatest(l.last_seq, h.seq)
FROM held h
WHERE l.task_id = h.task_id
RETURNING l.task_id, l.owner, l.epoch
