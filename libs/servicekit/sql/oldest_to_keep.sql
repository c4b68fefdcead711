-- Find the first row to keep.
-- Params: max_rows, oldest_ns (nanoseconds since 1970), most (rows that may go at once).
-- Returns: a row id, or NULL when nothing has to go. Cost: O(log n), plus the rows that are too old.
SELECT CASE WHEN bound > first THEN bound END FROM (
  SELECT
    first,
    min(
      first + :most,
      max(
        (SELECT coalesce(max(id), 0) - :max_rows + 1 FROM spans),
        coalesce((SELECT id FROM spans WHERE end_ns >= :oldest_ns ORDER BY id LIMIT 1), last + 1)
      )
    ) AS bound
  FROM (SELECT coalesce(min(id), 0) AS first, coalesce(max(id), 0) AS last FROM spans)
)
