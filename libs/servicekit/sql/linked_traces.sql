-- Find the traces that some traces link to.
-- Params: a JSON list of trace ids, most answers. Returns: trace ids. Cost: the spans of those traces.
SELECT DISTINCT l.trace_id FROM spans s JOIN span_links l ON l.span_row = s.id
WHERE s.trace_id IN (SELECT value FROM json_each(?)) LIMIT ?
