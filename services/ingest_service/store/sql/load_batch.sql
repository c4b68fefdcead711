-- Read what a batch needs to be decided; only after lock_cards in the same READ COMMITTED transaction.
-- $1 text[] distinct card ids; $2 uuid[], $3 timestamptz[], $4 text[] the observations: id, instant inside the id, card;
-- $5 date: cycles from this start on.
-- Returns one row per card and cycle (one with a null cycle for a card without any); known_ids are those of the card's
-- observations that the inbox holds.
-- Cost: index probes only; each inbox probe touches the one partition of its day. LIMIT and OFFSET keep the planner from
-- turning the probes into scans of whole tables.
WITH asked AS (
    SELECT * FROM unnest($2::uuid[], $3::timestamptz[], $4::text[]) AS asked (observation_id, observed_at, card_id)
), known AS (
    SELECT asked.card_id, array_agg(asked.observation_id) AS ids
    FROM asked
    CROSS JOIN LATERAL (
        SELECT 1 FROM ingest_inbox AS inbox
        WHERE inbox.observation_id = asked.observation_id AND inbox.observed_at = asked.observed_at
        LIMIT 1
    ) AS hit
    GROUP BY asked.card_id
)
SELECT card.card_id, card.account_id, card.lifecycle, card.polling_enabled, account.reset_day, account.time_zone,
       card.network_status, card.network_observed_at, card.network_observation_id,
       card.realname_status, card.realname_observed_at, card.realname_observation_id,
       card.cycle_start, card.cycle_used_bytes, card.applied_count, card.observed_at, card.version,
       known.ids AS known_ids,
       usage.cycle_start AS usage_start, usage.base_offset, usage.raw_max, usage.settled, usage.epoch,
       usage.epoch_started_at, usage.previous_raw_max, usage.previous_started_at, usage.last_raw, usage.last_observed_at,
       usage.candidate_raw, usage.candidate_at, usage.start_reset_seen, usage.end_reset_seen
FROM card
JOIN account ON account.account_id = card.account_id
LEFT JOIN LATERAL (
    SELECT * FROM usage_cycle WHERE usage_cycle.card_id = card.card_id AND usage_cycle.cycle_start >= $5 OFFSET 0
) AS usage ON true
LEFT JOIN known ON known.card_id = card.card_id
WHERE card.card_id = ANY ($1::text[])
