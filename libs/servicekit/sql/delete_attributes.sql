-- Remove the attributes of the oldest spans.
-- Params: first row to keep. Cost: one row each.
DELETE FROM span_attributes WHERE span_row < ?
