-- Find the traces that link to some traces.
-- Params: a JSON list of trace ids, most answers. Returns: trace ids. Cost: index lookups only.
SELECT DISTINCT s.trace_id FROM span_links l JOIN spans s ON s.id = l.span_row
WHERE l.trace_id IN (SELECT value FROM json_each(?)) LIMIT ?
