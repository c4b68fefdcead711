-- Hand held claims back: their tasks can be claimed again at once, from their old places, and the attempts do not count.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[].
-- A claim is named once. Returns task_id, owner, epoch, channel, slot_token, terminal of each released claim.
-- Invariant: as fail_tasks. A task that was asked to stop ends as cancelled instead.
-- Cost per task: one delete, two inserts.
WITH held AS MATERIALIZED (
    SELECT l.task_id FROM task_lease l
    JOIN unnest($1::uuid[], $2::text[], $3::integer[]) AS i (task_id, owner, epoch) USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
), ended AS (
    DELETE FROM task_lease l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM held)) RETURNING l.*
), judged AS MATERIALIZED (
    SELECT e.task_id, e.owner, e.epoch, e.attempt, e.step, e.tenant, e.channel, e.kind, e.payload_version, e.deadline_at,
           e.worker, e.slot_token, e.claimed_at, e.cancel_requested, e.cost,
           coalesce(e.run_order, task_run_order(now(), e.priority)) AS run_order
    FROM ended e
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, worker, owner, started_at, run_order)
    SELECT task_id, step, epoch, CASE WHEN cancel_requested THEN attempt ELSE attempt - 1 END,
           CASE WHEN cancel_requested THEN 'cancelled' ELSE 'released' END, cancel_requested, worker, owner, claimed_at,
           CASE WHEN NOT cancel_requested THEN run_order END
    FROM judged
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT channel, run_order, task_id, kind, payload_version, deadline_at, epoch, attempt - 1, step + 1
    FROM judged WHERE NOT cancel_requested
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, task_id, task_life(task_id), 'refund', cost FROM judged WHERE cancel_requested AND cost > 0
    ORDER BY tenant, task_id
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT 'cancelled', tenant, channel, array_agg(task_id) FROM judged WHERE cancel_requested GROUP BY 1, tenant, channel
)
SELECT task_id, owner, epoch, channel, slot_token, cancel_requested AS terminal FROM judged
