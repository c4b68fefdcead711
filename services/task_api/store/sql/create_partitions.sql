-- Make the partitions of this month and the next two.
-- Returns how many were created.
-- Cost: a few catalogue reads when all are there.
SELECT task_create_partitions(now()) + task_create_partitions(date_trunc('month', now(), 'UTC') + interval '40 days')
     + task_create_partitions(date_trunc('month', now(), 'UTC') + interval '70 days') AS created
