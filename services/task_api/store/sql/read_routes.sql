-- Read every route.
-- Returns model, channel, version, by model.
-- Cost: one scan of a small table.
SELECT model, channel, version FROM route ORDER BY model
