-- Read a task's events after a cursor, in order: what is stored, and the end of each of its lives.
-- $1 task_id uuid, $2 epoch int, $3 seq bigint, $4 limit int.
-- Returns epoch, seq, kind, data.
-- Invariant: an end has the greatest seq a browser can count to, so it comes after everything else of its epoch. Ends are
-- told from the outcomes, which are stored by the statement that ends a task; stored ends are an older version's.
-- Cost: one partition each of task_event and task_outcome, one range of the key of each.
SELECT epoch, seq, kind, data FROM (
    (SELECT epoch, seq, kind, data FROM task_event
     WHERE task_id = $1 AND (epoch, seq) > ($2::integer, $3::bigint) AND kind <> 'end'
     ORDER BY epoch, seq
     LIMIT $4)
    UNION ALL
    (SELECT epoch, 9007199254740991, 'end',
            CASE WHEN error IS NULL OR outcome = 'lost'
                 THEN '{"state":"' || CASE WHEN outcome = 'lost' THEN 'failed' ELSE outcome END || '"}'
                 ELSE json_build_object('state', outcome, 'error', left(error, 1000))::text END
     FROM task_outcome
     WHERE task_id = $1 AND terminal AND (epoch, 9007199254740991) > ($2::integer, $3::bigint))
) AS events
ORDER BY epoch, seq
LIMIT $4
