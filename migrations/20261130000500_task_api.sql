-- migrate:up

-- Owned by task_api: channel, task, task_ready, task_deferred, task_lease, task_outcome, task_event, task_key, task_export,
-- task_outbox, task_audit. A task is one immutable row; where it is in its life is which of the small tables holds it:
-- task_ready, task_deferred or task_lease, or none once its last task_outcome is terminal.

-- Where tasks run. The concurrency is a copy for people: the limit that counts is lease_service's policy for the scope
-- channel:<name> of the pool `tasks`, written through its SetPolicy when a channel is saved.
CREATE TABLE channel (
    name          text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_.-]{1,64}$'),
    concurrency   integer     NOT NULL CHECK (concurrency BETWEEN 0 AND 100000),
    max_backlog   integer     NOT NULL CHECK (max_backlog BETWEEN 1 AND 100000000),
    max_attempts  integer     NOT NULL CHECK (max_attempts BETWEEN 1 AND 100),
    retry_base_ms integer     NOT NULL DEFAULT 1000 CHECK (retry_base_ms BETWEEN 1 AND 3600000),
    retry_cap_ms  integer     NOT NULL DEFAULT 300000 CHECK (retry_cap_ms BETWEEN 1 AND 86400000),
    paused        boolean     NOT NULL DEFAULT false,
    version       bigint      NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now()
);

-- The immutable request. The id is a UUIDv7, so a range of ids is a range of time: one partition per UTC month.
-- run_order and due_at are those of its first wait; later waits keep theirs in task_outcome.
CREATE TABLE task (
    id              uuid        NOT NULL,
    tenant          text        NOT NULL,
    channel         text        NOT NULL,
    kind            text        NOT NULL,
    payload         json        NOT NULL,
    payload_version integer     NOT NULL,
    priority        smallint    NOT NULL,
    max_attempts    smallint    NOT NULL,
    run_order       bigint      NOT NULL,
    idempotency_key text,
    due_at          timestamptz,
    deadline_at     timestamptz,
    traceparent     text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

CREATE INDEX task_by_tenant ON task (tenant, id);

-- Runnable tasks only; a claim deletes the row. step numbers the next outcome, epoch rises with every claim and
-- every restart, attempt counts the attempts of the present budget.
CREATE TABLE task_ready (
    channel         text        NOT NULL,
    run_order       bigint      NOT NULL,
    id              uuid        NOT NULL,
    kind            text        NOT NULL,
    payload_version integer     NOT NULL,
    deadline_at     timestamptz,
    epoch           integer     NOT NULL,
    attempt         integer     NOT NULL,
    step            integer     NOT NULL,
    ready_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (channel, run_order, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX task_ready_deadline ON task_ready (deadline_at) WHERE deadline_at IS NOT NULL;

-- Tasks that wait for their time: delays and retries.
CREATE TABLE task_deferred (
    due_at          timestamptz NOT NULL,
    id              uuid        NOT NULL,
    channel         text        NOT NULL,
    run_order       bigint      NOT NULL,
    kind            text        NOT NULL,
    payload_version integer     NOT NULL,
    deadline_at     timestamptz,
    epoch           integer     NOT NULL,
    attempt         integer     NOT NULL,
    step            integer     NOT NULL,
    PRIMARY KEY (due_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX task_deferred_deadline ON task_deferred (deadline_at) WHERE deadline_at IS NOT NULL;

-- One row per running task: the right to write. No index on what renewals touch, and room on each page, so that they stay
-- heap-only updates. It holds as many rows as tasks run, so the sweeper may read it whole.
CREATE TABLE task_lease (
    task_id          uuid        PRIMARY KEY,
    owner            text        NOT NULL,
    epoch            integer     NOT NULL,
    attempt          integer     NOT NULL,
    step             integer     NOT NULL,
    tenant           text        NOT NULL,
    channel          text        NOT NULL,
    kind             text        NOT NULL,
    payload_version  integer     NOT NULL,
    priority         smallint    NOT NULL,
    max_attempts     smallint    NOT NULL,
    deadline_at      timestamptz,
    worker           text        NOT NULL,
    slot_token       text        NOT NULL,
    slot_fence       bigint      NOT NULL,
    claimed_at       timestamptz NOT NULL DEFAULT now(),
    lease_until      timestamptz NOT NULL,
    cancel_requested boolean     NOT NULL DEFAULT false,
    cancel_reason    text        NOT NULL DEFAULT '',
    progress_percent smallint    NOT NULL DEFAULT 0,
    progress_message text        NOT NULL DEFAULT '',
    last_seq         bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What happened to a task, append-only: ended attempts (started_at is set), cancellations and restarts. The key makes every
-- transition happen once. A row that is not terminal says where the task waits next: run_order, and due_at if deferred.
CREATE TABLE task_outcome (
    task_id     uuid        NOT NULL,
    step        integer     NOT NULL,
    epoch       integer     NOT NULL,
    attempt     integer     NOT NULL,
    outcome     text        NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'lost', 'released', 'retried')),
    terminal    boolean     NOT NULL,
    error_class text,
    error       text,
    result      json,
    worker      text,
    owner       text,
    started_at  timestamptz,
    finished_at timestamptz NOT NULL DEFAULT now(),
    run_order   bigint,
    due_at      timestamptz,
    PRIMARY KEY (task_id, step)
) PARTITION BY RANGE (task_id);

-- A task's output in order of (epoch, seq). The event `end` of an epoch has the greatest seq a browser can count to.
CREATE TABLE task_event (
    task_id    uuid        NOT NULL,
    epoch      integer     NOT NULL,
    seq        bigint      NOT NULL,
    kind       text        NOT NULL CHECK (kind IN ('text', 'end')),
    data       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, epoch, seq)
) PARTITION BY RANGE (task_id);

-- Idempotency keys. Not partitioned: the key alone finds the task.
CREATE TABLE task_key (
    tenant          text        NOT NULL,
    idempotency_key text        NOT NULL,
    task_id         uuid        NOT NULL,
    request_hash    bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, idempotency_key)
);

-- Where the one logical result of an export is; the first completion wins.
CREATE TABLE task_export (
    tenant       text        NOT NULL,
    export_id    text        NOT NULL,
    task_id      uuid        NOT NULL,
    epoch        integer     NOT NULL,
    object_key   text        NOT NULL,
    row_count    bigint      NOT NULL CHECK (row_count >= 0),
    size_bytes   bigint      NOT NULL CHECK (size_bytes >= 0),
    sha256       text        NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, export_id)
);

-- What others must learn about ends of tasks; written with the end, deleted by the relay.
CREATE TABLE task_outbox (
    outbox_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id    uuid        NOT NULL,
    event      text        NOT NULL,
    tenant     text        NOT NULL,
    channel    text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Who changed what.
CREATE TABLE task_audit (
    audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    changed_at timestamptz NOT NULL DEFAULT now(),
    actor      text        NOT NULL,
    action     text        NOT NULL,
    subject    text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    before     json,
    after      json
);

-- The place of a task in its channel: microseconds of the moment since which it may run; each level of priority is worth a
-- minute of waiting, so low priorities age into their turn.
CREATE FUNCTION task_run_order(since timestamptz, priority integer) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM since) * 1000000)::bigint - priority::bigint * 60000000;

-- The pause before the next attempt: full jitter over an exponentially growing span, and never before retry_after.
CREATE FUNCTION task_retry_delay(attempt integer, base_ms integer, cap_ms integer, retry_after_ms bigint) RETURNS interval
LANGUAGE sql VOLATILE
RETURN (greatest(retry_after_ms::double precision, 0)
        + random() * least(cap_ms::double precision, base_ms * power(2, least(attempt - 1, 20)))) * interval '1 millisecond';

-- The smallest UUIDv7 of an instant.
CREATE FUNCTION task_first_id(instant timestamptz) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM instant) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid;

-- Create the partitions of the month that holds `month`, where they are missing; returns how many were created. Built aside
-- and attached, so running inserts are not blocked; concurrent callers wait for each other.
CREATE FUNCTION task_create_partitions(month timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    first_day timestamptz := date_trunc('month', month, 'UTC');
    next_month timestamptz := date_trunc('month', first_day + interval '32 days', 'UTC');
    parent text;
    partition_name text;
    created integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('task_create_partitions'));
    FOREACH parent IN ARRAY ARRAY['task', 'task_outcome', 'task_event'] LOOP
        partition_name := parent || '_' || to_char(first_day AT TIME ZONE 'UTC', 'YYYY_MM');
        CONTINUE WHEN to_regclass(partition_name) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
                       partition_name, parent);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                       parent, partition_name, task_first_id(first_day), task_first_id(next_month));
        created := created + 1;
    END LOOP;
    RETURN created;
END
$$;

SELECT task_create_partitions(now() - interval '1 month');
SELECT task_create_partitions(now());
SELECT task_create_partitions(date_trunc('month', now(), 'UTC') + interval '40 days');

-- Channels of the bundled workers and of the demo.
INSERT INTO channel (name, concurrency, max_backlog, max_attempts) VALUES
    ('text-demo', 8, 10000, 5),
    ('export-small', 2, 1000, 5),
    ('export-large', 1, 100, 5);

-- migrate:down

DROP TABLE task_audit, task_outbox, task_export, task_key, task_event, task_outcome, task_lease, task_deferred, task_ready, task, channel;
DROP FUNCTION task_create_partitions(timestamptz), task_first_id(timestamptz),
    task_retry_delay(integer, integer, integer, bigint), task_run_order(timestamptz, integer);
