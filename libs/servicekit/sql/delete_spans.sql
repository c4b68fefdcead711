-- Remove the oldest spans.
-- Params: first row to keep. Returns: nothing. Cost: one row each.
DELETE FROM spans WHERE id < ?
