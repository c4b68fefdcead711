-- migrate:up

-- Owned by collection_writer: collection_record*, collection_quarantine, report.collection_record_v1.

-- What one poll returned, success or failure. Immutable. One partition per UTC month of observed_at, made ahead or on
-- demand by collection_create_partition; there is no DEFAULT partition, so a row never lands where retention can't see it.
-- The key starts with the time: rows arrive almost in key order, and the observation's id carries its own time.
CREATE TABLE collection_record (
    observation_id uuid        NOT NULL,
    observed_at    timestamptz NOT NULL,
    card_id        text        NOT NULL,
    account_id     text        NOT NULL,
    kind           text        NOT NULL,
    outcome        text        NOT NULL,
    reading        jsonb,
    raw            text        NOT NULL,
    error          text,
    latency_ms     bigint      NOT NULL,
    traceparent    text,
    stored_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT collection_record_key PRIMARY KEY (observed_at, observation_id),
    CONSTRAINT collection_record_kind CHECK (kind IN ('traffic', 'network', 'realname')),
    CONSTRAINT collection_record_outcome CHECK (outcome IN ('success', 'empty', 'failed')),
    CONSTRAINT collection_record_latency CHECK (latency_ms >= 0),
    CONSTRAINT collection_record_card CHECK (length(card_id) BETWEEN 1 AND 64),
    CONSTRAINT collection_record_account CHECK (length(account_id) BETWEEN 1 AND 64)
) PARTITION BY RANGE (observed_at);

CREATE INDEX collection_record_by_card ON collection_record (card_id, observed_at, observation_id);
CREATE INDEX collection_record_by_account ON collection_record (account_id, observed_at, observation_id);

-- Create the partition of the month that holds `month`, or do nothing when it is there. Returns true when it was created.
-- Writers that want the same month at once wait for each other on an advisory lock, so exactly one creates it. The table is
-- built aside and attached: attaching takes SHARE UPDATE EXCLUSIVE on the parent, so running inserts are not blocked.
CREATE FUNCTION collection_create_partition(month date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    first_day date := date_trunc('month', month::timestamp)::date;
    next_month date := (date_trunc('month', month::timestamp) + interval '1 month')::date;
    partition_name text := 'collection_record_' || to_char(first_day, 'YYYY_MM');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('collection_record'), to_char(first_day, 'YYYYMM')::integer);
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'collection_record'::regclass
               AND inhrelid = to_regclass(partition_name)) THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE collection_record INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
                   partition_name);
    EXECUTE format('ALTER TABLE collection_record ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', partition_name,
                   first_day::timestamp AT TIME ZONE 'UTC', next_month::timestamp AT TIME ZONE 'UTC');
    RETURN true;
END
$$;

-- Records that can't be stored, kept for a person. The same record that comes again only raises seen_count.
CREATE TABLE collection_quarantine (
    quarantine_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source         text        NOT NULL,
    observation_id text,
    card_id        text,
    reason         text        NOT NULL,
    sqlstate       text,
    body           bytea       NOT NULL,
    body_digest    bytea       NOT NULL UNIQUE,
    seen_count     integer     NOT NULL DEFAULT 1,
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT collection_quarantine_source CHECK (source IN ('message', 'rpc'))
);

CREATE INDEX collection_quarantine_by_observation ON collection_quarantine (observation_id);

-- What exports may read. A version of the view is never changed, only followed by another.
CREATE SCHEMA IF NOT EXISTS report;

CREATE VIEW report.collection_record_v1 AS
SELECT observation_id, observed_at, card_id, account_id, kind, outcome, reading, error, latency_ms, stored_at
FROM collection_record;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'sluicegate_report') THEN
        CREATE ROLE sluicegate_report NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role sluicegate_report is missing and may not be created here; create it and grant it schema report';
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of the same server made it at the same moment
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'sluicegate_report') THEN
        GRANT USAGE ON SCHEMA report TO sluicegate_report;
        GRANT SELECT ON report.collection_record_v1 TO sluicegate_report;
    END IF;
END
$$;

-- migrate:down

DROP VIEW IF EXISTS report.collection_record_v1;
DROP TABLE IF EXISTS collection_quarantine;
DROP TABLE IF EXISTS collection_record;
DROP FUNCTION IF EXISTS collection_create_partition(date);
