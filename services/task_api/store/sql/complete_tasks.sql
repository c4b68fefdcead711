-- End held claims well.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 result text[] (JSON), $5 export_id text[] (null: no export),
-- $6 object_key text[], $7 row_count bigint[], $8 size_bytes bigint[], $9 sha256 text[].
-- A claim is named once. Returns task_id, owner, epoch, channel, slot_token of each ended claim.
-- Invariant: outcome, ledger entry, export pointer and outbox row are stored together, once, and only while the claim is
-- held and unexpired by the database's clock. Rows are locked in order of their ids.
-- Cost per task: one delete, one insert; one more each for an export and for a cost.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                         $8::bigint[], $9::text[])
        AS i (task_id, owner, epoch, result, export_id, object_key, row_count, size_bytes, sha256)
), held AS MATERIALIZED (
    SELECT l.task_id FROM task_lease l JOIN input i USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
), ended AS (
    DELETE FROM task_lease l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM held)) RETURNING l.*
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, result, worker, owner, started_at)
    SELECT e.task_id, e.step, e.epoch, e.attempt, 'succeeded', true, i.result::json, e.worker, e.owner, e.claimed_at
    FROM ended e JOIN input i USING (task_id, owner, epoch)
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, task_id, task_life(task_id), 'settle', cost FROM ended WHERE cost > 0
    ORDER BY tenant, task_id
), export AS (
    INSERT INTO task_export (tenant, export_id, task_id, epoch, object_key, row_count, size_bytes, sha256)
    SELECT e.tenant, i.export_id, e.task_id, e.epoch, i.object_key, i.row_count, i.size_bytes, i.sha256
    FROM ended e JOIN input i USING (task_id, owner, epoch)
    WHERE i.export_id IS NOT NULL
    ORDER BY e.tenant, i.export_id
    ON CONFLICT DO NOTHING
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT 'succeeded', tenant, channel, array_agg(task_id) FROM ended GROUP BY tenant, channel
)
SELECT task_id, owner, epoch, channel, slot_token FROM ended
