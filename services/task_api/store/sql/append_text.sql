-- Append text events of held claims.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 seq bigint[], $5 text text[].
-- Returns task_id, owner, epoch, last_seq of each held claim: its greatest stored seq before this statement.
-- Invariant: events of a task become visible in the order of their ids: the lease row is locked until the commit, and only
-- a seq above all stored ones is taken. Nothing is written once the claim is lost or expired.
-- Cost: one heap-only update per task, one insert per event.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::bigint[], $5::text[])
        AS i (task_id, owner, epoch, seq, data)
), held AS MATERIALIZED (
    SELECT l.task_id, l.owner, l.epoch, l.last_seq FROM task_lease l
    WHERE (l.task_id, l.owner, l.epoch) IN (SELECT task_id, owner, epoch FROM input) AND l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE
), fresh AS MATERIALIZED (
    SELECT DISTINCT ON (i.task_id, i.epoch, i.seq) i.task_id, i.epoch, i.seq, i.data
    FROM input i JOIN held h USING (task_id, owner, epoch)
    WHERE i.seq > h.last_seq
    ORDER BY i.task_id, i.epoch, i.seq
), stored AS (
    INSERT INTO task_event (task_id, epoch, seq, kind, data)
    SELECT task_id, epoch, seq, 'text', data FROM fresh
), counted AS (
    UPDATE task_lease l SET last_seq = f.greatest_seq
    FROM (SELECT task_id, max(seq) AS greatest_seq FROM fresh GROUP BY task_id) AS f
    WHERE l.task_id = f.task_id
)
SELECT task_id, owner, epoch, last_seq FROM held
