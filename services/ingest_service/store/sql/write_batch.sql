-- Store everything that a batch changes: inbox, cards, counters, days, events and audit, in one statement.
-- $1 timestamptz now;
-- $2.. inbox: uuid[] ids, timestamptz[] instants inside the ids, text[] cards, text[] kinds, text[] outcomes, bigint[] increments;
-- $8.. cards: text[] ids, then network and real-name status, instant and observation, cycle start, used bytes, applied
--      count and latest instant;
-- $19.. usage_cycle, column by column, in key order; $34.. usage_daily: cards, days, used, increments, in key order;
-- $38.. outbox: event ids, cards, accounts, types, instants, observations, data, trace contexts;
-- $46.. audit: cards, observations, actions, details, instants.
-- Returns how many inbox rows are new: fewer than given means that somebody else applied one of them, and the caller
-- must roll back.
-- Invariant: the cards are locked by this transaction, so what is written was decided from the latest state.
-- Cost: one round trip; a few index writes per observation.
WITH inbox AS (
    INSERT INTO ingest_inbox (observation_id, observed_at, card_id, kind, outcome, increment_bytes, applied_at)
    SELECT given.*, $1::timestamptz
    FROM unnest($2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::bigint[]) AS given
    ON CONFLICT DO NOTHING
    RETURNING 1
), cards AS (
    UPDATE card
    SET network_status = given.network_status, network_observed_at = given.network_at,
        network_observation_id = given.network_id, realname_status = given.realname_status,
        realname_observed_at = given.realname_at, realname_observation_id = given.realname_id,
        cycle_start = given.cycle_start, cycle_used_bytes = given.cycle_used, applied_count = given.applied_count,
        observed_at = given.observed_at, version = card.version + 1, updated_at = $1
    FROM unnest($8::text[], $9::text[], $10::timestamptz[], $11::uuid[], $12::text[], $13::timestamptz[], $14::uuid[],
                $15::date[], $16::bigint[], $17::bigint[], $18::timestamptz[])
         AS given (card_id, network_status, network_at, network_id, realname_status, realname_at, realname_id,
                   cycle_start, cycle_used, applied_count, observed_at)
    WHERE card.card_id = given.card_id
), cycles AS (
    INSERT INTO usage_cycle (
        card_id, cycle_start, base_offset, raw_max, settled, epoch, epoch_started_at, previous_raw_max,
        previous_started_at, last_raw, last_observed_at, candidate_raw, candidate_at, start_reset_seen, end_reset_seen)
    SELECT given.*
    FROM unnest($19::text[], $20::date[], $21::bigint[], $22::bigint[], $23::bigint[], $24::integer[],
                $25::timestamptz[], $26::bigint[], $27::timestamptz[], $28::bigint[], $29::timestamptz[],
                $30::bigint[], $31::timestamptz[], $32::boolean[], $33::boolean[]) AS given
    ON CONFLICT (card_id, cycle_start) DO UPDATE
    SET base_offset = excluded.base_offset, raw_max = excluded.raw_max, settled = excluded.settled,
        epoch = excluded.epoch, epoch_started_at = excluded.epoch_started_at,
        previous_raw_max = excluded.previous_raw_max, previous_started_at = excluded.previous_started_at,
        last_raw = excluded.last_raw, last_observed_at = excluded.last_observed_at,
        candidate_raw = excluded.candidate_raw, candidate_at = excluded.candidate_at,
        start_reset_seen = excluded.start_reset_seen, end_reset_seen = excluded.end_reset_seen
), daily AS (
    INSERT INTO usage_daily AS daily (card_id, day, used_bytes, increment_bytes)
    SELECT given.*
    FROM unnest($34::text[], $35::date[], $36::bigint[], $37::bigint[]) AS given
    ON CONFLICT (card_id, day) DO UPDATE
    SET used_bytes = greatest(daily.used_bytes, excluded.used_bytes),
        increment_bytes = daily.increment_bytes + excluded.increment_bytes
), outbox AS (
    INSERT INTO ingest_outbox (
        event_id, card_id, account_id, event_type, observed_at, observation_id, data, traceparent, created_at)
    SELECT given.event_id, given.card_id, given.account_id, given.event_type, given.observed_at, given.observation_id,
           given.data::jsonb, given.traceparent, $1
    FROM unnest($38::uuid[], $39::text[], $40::text[], $41::text[], $42::timestamptz[], $43::uuid[], $44::text[],
                $45::text[])
         AS given (event_id, card_id, account_id, event_type, observed_at, observation_id, data, traceparent)
    ON CONFLICT (event_id) DO NOTHING
), audit AS (
    INSERT INTO ingest_audit (card_id, observation_id, action, detail, observed_at, audited_at)
    SELECT given.card_id, given.observation_id, given.action, given.detail::jsonb, given.observed_at, $1
    FROM unnest($46::text[], $47::uuid[], $48::text[], $49::text[], $50::timestamptz[])
         AS given (card_id, observation_id, action, detail, observed_at)
)
SELECT count(*) FROM inbox
