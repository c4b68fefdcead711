-- Tell how claims ended: what tells a repeated completion from a lost claim.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[].
-- Returns task_id, owner, epoch, outcome of each claim whose own worker ended it.
-- Cost: one partition and one short range of the key per claim.
SELECT o.task_id, o.owner, o.epoch, o.outcome
FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS i (task_id, owner, epoch)
JOIN task_outcome o USING (task_id, owner, epoch)
WHERE o.outcome <> 'lost'
