-- Make a span findable by a trace that it links to.
-- Params: row of the span, trace id. Invariant: the same pair twice is one row. Cost: two index entries.
INSERT OR IGNORE INTO span_links (span_row, trace_id) VALUES (?, ?)
