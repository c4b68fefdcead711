-- Add one finished span.
-- Params: the columns in order; times in nanoseconds since 1970. Returns: nothing.
-- Cost: one row and one index entry.
INSERT INTO spans (
  id, trace_id, span_id, parent_span_id, name, kind, service, start_ns, end_ns, status, status_text,
  attributes, events, links
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
