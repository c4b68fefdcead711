-- Find the newest spans with an attribute of a value.
-- Params: attribute name, value, most spans. Returns: spans, newest first. Cost: index lookups only.
SELECT
  trace_id, span_id, parent_span_id, name, kind, service, start_ns, end_ns, status, status_text,
  attributes, events, links
FROM spans
WHERE id IN (SELECT span_row FROM span_attributes WHERE name = ? AND value = ? ORDER BY span_row DESC LIMIT ?)
ORDER BY id DESC
