-- Write an audit row about a change of several rows.
-- $1 actor text, $2 action text, $3 subject text, $4 reason text, $5 after text (JSON).
-- Cost: one insert.
INSERT INTO task_audit (actor, action, subject, reason, after) VALUES ($1, $2, $3, $4, $5::json)
