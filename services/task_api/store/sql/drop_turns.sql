-- Forget turns that say nothing any more: the mark has passed them.
-- Cost: one scan of a table that holds the tenants with a backlog; one delete per row.
DELETE FROM channel_turn t USING channel_mark m WHERE m.channel = t.channel AND t.last_tag <= m.mark
