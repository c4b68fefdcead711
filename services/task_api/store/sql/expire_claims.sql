-- End claims whose slots are gone, so that the sweeper hands their tasks to others.
-- $1 task_id uuid[], $2 owner text[], $3 epoch int[].
-- Cost: one heap-only update per claim.
UPDATE task_lease l SET lease_until = now()
FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS i (task_id, owner, epoch)
WHERE l.task_id = i.task_id AND l.owner = i.owner AND l.epoch = i.epoch AND l.lease_until > now()
