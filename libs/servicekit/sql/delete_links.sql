-- Remove the links of the oldest spans.
-- Params: first row to keep. Cost: one row each.
DELETE FROM span_links WHERE span_row < ?
