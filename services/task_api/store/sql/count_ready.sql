-- Count the tasks of a channel that a worker could claim now, up to a limit: asked before slots are taken.
-- $1 channel text, $2 kinds text[], $3 newest payload versions int[] (same order), $4 limit int, $5 run_order bigint from which
-- to look.
-- Returns ready_count.
-- Cost: walks the channel's order until the limit; tasks of other kinds in front are skipped, not hidden.
SELECT count(*) AS ready_count FROM (
    SELECT FROM task_ready
    WHERE channel = $1 AND run_order >= $5
      AND payload_version <= ($3::integer[])[array_position($2::text[], kind)]
      AND (deadline_at IS NULL OR deadline_at > now())
    ORDER BY run_order, id
    LIMIT $4
) AS r
