-- Make a span findable by one attribute.
-- Params: row of the span, attribute name, value. Invariant: the same pair twice is one row.
-- Cost: two index entries.
INSERT OR IGNORE INTO span_attributes (span_row, name, value) VALUES (?, ?, ?)
