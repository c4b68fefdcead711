-- Add one finished span.
-- Params: the columns in order; times in nanoseconds since 1970. Returns: nothing; its row id is the cursor's.
-- Cost: one row and one index entry.
INSERT INTO spans (
  trace_id, span_id, parent_span_id, name, kind, service, start_ns, end_ns, status, status_text,
  attributes, events, links
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
