-- Say how far claims have come, and learn how far others have.
-- $1 channel text[], $2 mark bigint[].
-- Returns channel, mark of every channel.
-- Invariant: a mark never goes back. Rows are taken in order.
-- Cost: one insert or heap-only update per channel whose mark has moved; one scan of a small table.
WITH moved AS (
    INSERT INTO channel_mark AS m (channel, mark)
    SELECT i.channel, i.mark FROM unnest($1::text[], $2::bigint[]) AS i (channel, mark)
    WHERE NOT EXISTS (SELECT FROM channel_mark k WHERE k.channel = i.channel AND k.mark >= i.mark)
    ORDER BY i.channel
    ON CONFLICT (channel) DO UPDATE SET mark = excluded.mark WHERE m.mark < excluded.mark
    RETURNING channel, mark
)
SELECT channel, mark FROM moved
UNION ALL
SELECT channel, mark FROM channel_mark WHERE channel NOT IN (SELECT channel FROM moved)
