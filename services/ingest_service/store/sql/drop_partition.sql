-- Drop a table that was detached from the inbox. {name}: its quoted name.
DROP TABLE IF EXISTS {name}
