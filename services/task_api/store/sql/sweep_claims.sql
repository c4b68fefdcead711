-- End claims that have expired: their tasks can be claimed again at once, or are parked when the budget is used up.
-- $1 limit int.
-- Returns task_id, owner, epoch, channel, slot_token, terminal of each ended claim.
-- Invariant: the expiry is judged again under the row's lock, by the database's clock, so a claim that was renewed in
-- between stays. A task that kills its workers ends as failed after its last attempt.
-- Cost: one scan of task_lease, which holds running tasks only; per task one delete and two or three inserts.
WITH expired AS MATERIALIZED (
    SELECT task_id FROM task_lease
    WHERE lease_until <= now()
    ORDER BY task_id
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM task_lease l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM expired)) RETURNING l.*
), judged AS MATERIALIZED (
    SELECT e.*, task_run_order(now(), e.priority) AS run_order,
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
), event AS (
    INSERT INTO task_event (task_id, epoch, seq, kind, data)
    SELECT task_id, epoch, 9007199254740991, 'end',
           json_build_object('state', CASE WHEN outcome = 'lost' THEN 'failed' ELSE outcome END)::text
    FROM judged WHERE terminal
), outbox AS (
    INSERT INTO task_outbox (task_id, event, tenant, channel)
    SELECT task_id, CASE WHEN outcome = 'lost' THEN 'failed' ELSE outcome END, tenant, channel FROM judged WHERE terminal
)
SELECT task_id, owner, epoch, channel, slot_token, terminal FROM judged
