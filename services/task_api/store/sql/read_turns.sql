-- Read the turns of tenants in channels.
-- $1 channel text[], $2 tenant text[].
-- Returns channel, tenant, last_tag of each that is known.
-- Cost: one probe per pair.
SELECT t.channel, t.tenant, t.last_tag
FROM unnest($1::text[], $2::text[]) AS i (channel, tenant)
JOIN channel_turn t USING (channel, tenant)
