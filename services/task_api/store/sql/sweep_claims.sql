-- End claims that have expired: their tasks can be claimed again at once, from their
-- old places, or are parked when the budget is used up.
-- $1 limit int.
-- Returns task_id, owner, epoch, channel, slot_token, terminal of each ended claim.
-- Invariant: the expiry is judged again under the row's lock, by the database's clock, so a claim that was renewed in
-- between stays. A task that kills its workers ends as failed after its last attempt.
-- Cost: one scan of task_lease, which holds running tasks only; per task one delete and one or two inserts.
WITH expired AS MATERIALIZED (
    SELECT task_id FROM task_lease
    WHERE lease_until <= now()
    ORDER BY task_id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM task_lease l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM expired)) RETURNING l.*
), judged AS MATERIALIZED (
    SELECT e.task_id, e.owner, e.epoch, e.attempt, e.step, e.tenant, e.channel, e.kind, e.payload_version, e.deadline_at,
           e.worker, e.slot_token, e.claimed_at, e.cost,
           coalesce(e.run_order, task_run_order(now(), e.priority)) AS run_order,
           e.cancel_requested OR e.attempt >= e.max_attempts OR e.deadline_at <= now() IS TRUE AS terminal,
           CASE WHEN e.cancel_requested THEN 'cancelled' ELSE 'lost' END AS outcome
    FROM ended e
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, error_class, error, worker, owner, started_at,
                              run_order)
    SELECT task_id, step, epoch, attempt, outcome, terminal, CASE WHEN outcome = 'lost' THEN 'lost' END,
           CASE WHEN outcome = 'lost' THEN 'the worker did not renew its claim in time' END, worker, owner, claimed_at,
           CASE WHEN NOT terminal THEN run_order END
    FROM judged
), ready AS (
    INSERT INTO task_ready (channel, run_order, id, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT channel, run_order, task_id, kind, payload_version, deadline_at, epoch, attempt, step + 1
    FROM judged WHERE NOT terminal
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, task_id, task_life(task_id), 'refund', cost FROM judged WHERE terminal AND cost > 0
    ORDER BY tenant, task_id
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT CASE WHEN outcome = 'lost' THEN 'failed' ELSE outcome END, tenant, channel, array_agg(task_id) FROM judged WHERE terminal GROUP BY 1, tenant, channel
)
SELECT task_id, owner, epoch, channel, slot_token, terminal FROM judged
