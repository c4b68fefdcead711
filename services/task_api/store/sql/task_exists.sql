-- Tell whether there is a task, whoever's it is: for operators.
-- $1 id uuid.
-- Returns found.
-- Cost: a probe by key.
SELECT EXISTS (SELECT FROM task WHERE id = $1) AS found
