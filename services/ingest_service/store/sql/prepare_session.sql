-- Prepare a new connection: every statement of this service is meant to go through an index, and a plan that was made
-- while a new day's partition was empty must not scan it when it has filled.
SET enable_seqscan = off
