-- End held claims badly: another attempt is planned while the class, the budget and the deadline allow it.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[], $4 error_class text[] (transient, throttled, permanent, poison, cancelled),
-- $5 error text[], $6 retry_after_ms bigint[].
-- A claim is named once. Returns task_id, owner, epoch, channel, slot_token, terminal of each ended claim.
-- Invariant: a task ends or waits again, never both, and only while the claim is held and unexpired by the database's
-- clock. A task that was asked to stop gets no further attempt. Rows are locked in order of their ids.
-- The place in the queue is given when the task is promoted.
-- Cost per task: one delete, one or two inserts, one probe of channel.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::bigint[])
        AS i (task_id, owner, epoch, error_class, error, retry_after_ms)
), held AS MATERIALIZED (
    SELECT l.task_id FROM task_lease l JOIN input i USING (task_id, owner, epoch)
    WHERE l.lease_until > now()
    ORDER BY l.task_id
    FOR UPDATE OF l
), ended AS (
    DELETE FROM task_lease l WHERE l.task_id = ANY (ARRAY(SELECT task_id FROM held)) RETURNING l.*
), planned AS MATERIALIZED (
    SELECT e.*, i.error_class, i.error,
           now() + task_retry_delay(e.attempt, coalesce(c.retry_base_ms, 1000), coalesce(c.retry_cap_ms, 300000),
                                    i.retry_after_ms) AS due_at
    FROM ended e
    JOIN input i USING (task_id, owner, epoch)
    LEFT JOIN channel c ON c.name = e.channel
), judged AS MATERIALIZED (
    SELECT p.*,
           NOT (p.error_class IN ('transient', 'throttled', 'poison') AND NOT p.cancel_requested AND p.attempt < p.max_attempts
                AND (p.deadline_at IS NULL OR p.due_at < p.deadline_at)) AS terminal,
           CASE WHEN p.cancel_requested THEN 'cancelled' ELSE 'failed' END AS outcome
    FROM planned p
), outcome AS (
    INSERT INTO task_outcome (task_id, step, epoch, attempt, outcome, terminal, error_class, error, worker, owner, started_at,
                              run_order, due_at)
    SELECT task_id, step, epoch, attempt, outcome, terminal,
           CASE WHEN error_class = 'cancelled' AND outcome = 'failed' THEN 'permanent'
                WHEN error_class <> 'cancelled' THEN error_class END,
           error, worker, owner, claimed_at,
           CASE WHEN NOT terminal THEN run_order END, CASE WHEN NOT terminal THEN due_at END
    FROM judged
), deferred AS (
    INSERT INTO task_deferred (due_at, id, channel, run_order, kind, payload_version, deadline_at, epoch, attempt, step)
    SELECT due_at, task_id, channel, run_order, kind, payload_version, deadline_at, epoch, attempt, step + 1
    FROM judged WHERE NOT terminal
), ledger AS (
    INSERT INTO ledger_entry (tenant, task_id, life, kind, amount)
    SELECT tenant, task_id, task_life(task_id), 'refund', cost FROM judged WHERE terminal AND cost > 0
    ORDER BY tenant, task_id
), outbox AS (
    INSERT INTO task_outbox_batch (event, tenant, channel, task_ids)
    SELECT outcome, tenant, channel, array_agg(task_id) FROM judged WHERE terminal GROUP BY 1, tenant, channel
)
SELECT task_id, owner, epoch, channel, slot_token, terminal FROM judged
