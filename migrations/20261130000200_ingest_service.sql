-- migrate:up

-- Owned by ingest_service: account*, card*, usage_*, ingest_*.

-- A carrier account. Its limits are no columns: capacity lives in slot_policy of lease_service, under the pool named here,
-- in the scopes `poll` and `stop_resume`.
CREATE TABLE account (
    account_id      text        PRIMARY KEY,
    name            text        NOT NULL,
    gateway_kind    text        NOT NULL,
    gateway_url     text        NOT NULL,
    credential_name text        NOT NULL,
    reset_day       smallint    NOT NULL,
    time_zone       text        NOT NULL,
    poll_interval_s integer     NOT NULL,
    enabled         boolean     NOT NULL,
    slot_pool       text        NOT NULL GENERATED ALWAYS AS ('gateway:' || account_id) STORED,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT account_reset_day CHECK (reset_day BETWEEN 1 AND 31),
    CONSTRAINT account_poll_interval CHECK (poll_interval_s > 0)
);

-- Capacities that were asked for and that lease_service has not confirmed yet; a row is deleted once it has.
CREATE TABLE account_policy_request (
    account_id   text        NOT NULL REFERENCES account,
    scope        text        NOT NULL,
    capacity     integer     NOT NULL,
    actor        text        NOT NULL,
    request_id   uuid        NOT NULL,
    requested_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, scope),
    CONSTRAINT account_policy_request_scope CHECK (scope IN ('poll', 'stop_resume'))
);

CREATE TABLE account_audit (
    audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id text        NOT NULL,
    actor      text        NOT NULL,
    action     text        NOT NULL,
    detail     jsonb       NOT NULL,
    audited_at timestamptz NOT NULL
);

CREATE INDEX account_audit_by_account ON account_audit (account_id, audit_id);

-- A SIM and what is known of it. `version` rises with every change, so that a slower writer never puts older facts into a
-- cache. No index covers a column that applying changes: those updates stay on their page.
CREATE TABLE card (
    card_id                 text        PRIMARY KEY,
    account_id              text        NOT NULL REFERENCES account,
    msisdn                  text        NOT NULL,
    lifecycle               text        NOT NULL,
    polling_enabled         boolean     NOT NULL,
    network_status          text        NOT NULL DEFAULT '',
    network_observed_at     timestamptz,
    network_observation_id  uuid,
    realname_status         text        NOT NULL DEFAULT '',
    realname_observed_at    timestamptz,
    realname_observation_id uuid,
    cycle_start             date,
    cycle_used_bytes        bigint      NOT NULL DEFAULT 0,
    applied_count           bigint      NOT NULL DEFAULT 0,
    observed_at             timestamptz,
    version                 bigint      NOT NULL DEFAULT 1,
    updated_at              timestamptz NOT NULL,
    CONSTRAINT card_lifecycle CHECK (lifecycle IN ('inventory', 'active', 'suspended', 'retired')),
    CONSTRAINT card_cycle_used CHECK (cycle_used_bytes >= 0)
) WITH (fillfactor = 80);

CREATE INDEX card_by_account ON card (account_id, card_id);

CREATE TABLE card_audit (
    audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    card_id    text        NOT NULL,
    actor      text        NOT NULL,
    action     text        NOT NULL,
    detail     jsonb       NOT NULL,
    audited_at timestamptz NOT NULL
);

CREATE INDEX card_audit_by_card ON card_audit (card_id, audit_id);

-- The counter of one card in one usage cycle. used = base_offset + raw_max; settled is how much of it was given out as
-- increments and never falls. base_offset is below zero while the carrier goes on counting the previous cycle.
CREATE TABLE usage_cycle (
    card_id             text        NOT NULL,
    cycle_start         date        NOT NULL,
    base_offset         bigint      NOT NULL,
    raw_max             bigint      NOT NULL,
    settled             bigint      NOT NULL,
    epoch               integer     NOT NULL,
    epoch_started_at    timestamptz,
    previous_raw_max    bigint      NOT NULL,
    previous_started_at timestamptz,
    last_raw            bigint      NOT NULL,
    last_observed_at    timestamptz,
    candidate_raw       bigint,
    candidate_at        timestamptz,
    start_reset_seen    boolean     NOT NULL,
    end_reset_seen      boolean     NOT NULL,
    PRIMARY KEY (card_id, cycle_start),
    CONSTRAINT usage_cycle_raw_max CHECK (raw_max >= 0),
    CONSTRAINT usage_cycle_settled CHECK (settled >= 0 AND settled >= base_offset + raw_max),
    CONSTRAINT usage_cycle_candidate CHECK ((candidate_raw IS NULL) = (candidate_at IS NULL))
) WITH (fillfactor = 80);

-- One local day of one card: the day's highest cycle-to-date usage, and what the day added.
CREATE TABLE usage_daily (
    card_id         text   NOT NULL,
    day             date   NOT NULL,
    used_bytes      bigint NOT NULL,
    increment_bytes bigint NOT NULL,
    PRIMARY KEY (card_id, day),
    CONSTRAINT usage_daily_positive CHECK (used_bytes >= 0 AND increment_bytes >= 0)
) WITH (fillfactor = 80);

-- Which observations were applied: commits with the effect. observed_at is the instant inside the id (to the
-- millisecond), so that equal ids always have equal keys. One partition per UTC day, made ahead or on demand by
-- ingest_create_partition; older than 8 days is dropped and answered "too old". There is no DEFAULT partition.
CREATE TABLE ingest_inbox (
    observation_id  uuid        NOT NULL,
    observed_at     timestamptz NOT NULL,
    card_id         text        NOT NULL,
    kind            text        NOT NULL,
    outcome         text        NOT NULL,
    increment_bytes bigint      NOT NULL,
    applied_at      timestamptz NOT NULL,
    PRIMARY KEY (observation_id, observed_at),
    CONSTRAINT ingest_inbox_outcome CHECK (outcome IN ('applied', 'stale'))
) PARTITION BY RANGE (observed_at);

-- Create the partition that holds `day` (UTC), or do nothing when it is there. Returns true when it was created. Writers
-- that want the same day at once wait for each other on an advisory lock. The table is built aside and attached:
-- attaching takes SHARE UPDATE EXCLUSIVE on the parent, so running inserts are not blocked.
CREATE FUNCTION ingest_create_partition(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    partition_name text := 'ingest_inbox_' || to_char(day, 'YYYY_MM_DD');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('ingest_inbox'), to_char(day, 'YYYYMMDD')::integer);
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'ingest_inbox'::regclass
               AND inhrelid = to_regclass(partition_name)) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE ingest_inbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
                   partition_name);
    EXECUTE format('ALTER TABLE ingest_inbox ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition_name,
                   day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END
$$;

-- Events that committed with their cause and wait to be published. event_id is derived from the cause, so that whoever
-- publishes an event twice publishes the same one.
CREATE TABLE ingest_outbox (
    outbox_id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       uuid        NOT NULL UNIQUE,
    card_id        text        NOT NULL,
    account_id     text        NOT NULL,
    event_type     text        NOT NULL,
    observed_at    timestamptz NOT NULL,
    observation_id uuid        NOT NULL,
    data           jsonb       NOT NULL,
    traceparent    text        NOT NULL,
    created_at     timestamptz NOT NULL,
    published_at   timestamptz
) WITH (fillfactor = 80);

CREATE INDEX ingest_outbox_unpublished ON ingest_outbox (outbox_id) WHERE published_at IS NULL;
CREATE INDEX ingest_outbox_published ON ingest_outbox (published_at) WHERE published_at IS NOT NULL;
CREATE INDEX ingest_outbox_by_observation ON ingest_outbox (observation_id);

-- Why a card's state is what it is: changes of status, counter resets, corrections.
CREATE TABLE ingest_audit (
    audit_id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    card_id        text        NOT NULL,
    observation_id uuid        NOT NULL,
    action         text        NOT NULL,
    detail         jsonb       NOT NULL,
    observed_at    timestamptz NOT NULL,
    audited_at     timestamptz NOT NULL
);

CREATE INDEX ingest_audit_by_card ON ingest_audit (card_id, audit_id);

-- What can't be stored, kept for a person. The same message that comes again only raises seen_count.
CREATE TABLE ingest_quarantine (
    quarantine_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body_digest    bytea       NOT NULL UNIQUE,
    body           bytea       NOT NULL,
    observation_id uuid,
    card_id        text        NOT NULL,
    reason         text        NOT NULL,
    sqlstate       text        NOT NULL,
    seen_count     integer     NOT NULL DEFAULT 1,
    quarantined_at timestamptz NOT NULL,
    replayed_at    timestamptz,
    replayed_by    text        NOT NULL DEFAULT ''
);

CREATE INDEX ingest_quarantine_by_observation ON ingest_quarantine (observation_id) WHERE observation_id IS NOT NULL;

-- Observations that wait, however long it takes. parked_major names the message version whose reader they wait for.
CREATE TABLE ingest_retry (
    retry_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body_digest     bytea       NOT NULL UNIQUE,
    body            bytea       NOT NULL,
    observation_id  uuid,
    parked_major    integer     NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL,
    last_error      text        NOT NULL,
    first_failed_at timestamptz NOT NULL,
    due_at          timestamptz NOT NULL
);

CREATE INDEX ingest_retry_due ON ingest_retry (due_at);
CREATE INDEX ingest_retry_by_observation ON ingest_retry (observation_id) WHERE observation_id IS NOT NULL;

-- migrate:down

DROP TABLE IF EXISTS ingest_retry, ingest_quarantine, ingest_audit, ingest_outbox, ingest_inbox, usage_daily, usage_cycle,
    card_audit, card, account_audit, account_policy_request, account;
DROP FUNCTION IF EXISTS ingest_create_partition(date);
