-- Read all spans of some traces.
-- Params: a JSON list of trace ids. Returns: spans in start order. Cost: one index lookup per trace.
SELECT
  trace_id, span_id, parent_span_id, name, kind, service, start_ns, end_ns, status, status_text,
  attributes, events, links
FROM spans
WHERE trace_id IN (SELECT value FROM json_each(?))
ORDER BY start_ns, id
