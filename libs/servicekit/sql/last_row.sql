-- Find the greatest row id ever given to a span.
-- Params: none. Returns: a row id, 0 in an empty store. Invariant: read inside the writing transaction, so that no
-- other writer takes the next ones. Cost: O(1).
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'spans'), 0)
