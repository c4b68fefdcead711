-- Bring the turns that this process has given out together with those of others.
-- $1 channel text[], $2 tenant text[], $3 last_tag bigint[] (as this process sees it), $4 added bigint[] (by this process since
-- it said so last).
-- Returns channel, tenant, last_tag as it is for everybody now.
-- Invariant: what several processes add to one turn adds up; a turn never goes back. Rows are taken in order.
-- Cost: one insert or heap-only update per pair.
INSERT INTO channel_turn AS t (channel, tenant, last_tag)
SELECT channel, tenant, last_tag FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i (channel, tenant, last_tag)
ORDER BY channel, tenant
ON CONFLICT (channel, tenant) DO UPDATE SET last_tag = greatest(
    excluded.last_tag,
    t.last_tag + (SELECT a.added FROM unnest($1::text[], $2::text[], $4::bigint[]) AS a (channel, tenant, added)
                  WHERE a.channel = excluded.channel AND a.tenant = excluded.tenant))
RETURNING channel, tenant, last_tag
