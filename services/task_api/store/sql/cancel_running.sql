-- Ask a running task to stop; its worker learns it with the next renewal.
-- $1 id uuid, $2 tenant text, $3 reason text.
-- Returns task_id when the task runs.
-- Cost: one heap-only update.
UPDATE task_lease SET cancel_requested = true, cancel_reason = $3
WHERE task_id = $1 AND tenant = $2
RETURNING task_id
