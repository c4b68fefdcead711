-- migrate:up
SET lock_timeout = '2s';
SET statement_timeout = '60s';

-- Fair order. The place of a task is a point of its channel's virtual time, in millionths of a turn of a tenant of
-- ordinary weight. channel_mark is how far claims have come, channel_turn where a tenant's next task goes; both are kept
-- by every task_api in memory and brought together here twice a second. A turn that the mark has passed says nothing.
CREATE TABLE channel_mark (
    channel text   PRIMARY KEY,
    mark    bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE channel_turn (
    channel  text   NOT NULL,
    tenant   text   NOT NULL,
    last_tag bigint NOT NULL,
    PRIMARY KEY (channel, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Tasks that wait already have places in microseconds since 1970: channels that have any go on from there.
INSERT INTO channel_mark (channel, mark)
SELECT name, (extract(epoch FROM now()) * 1000000)::bigint FROM channel
WHERE name IN (SELECT channel FROM task_ready UNION SELECT channel FROM task_deferred UNION SELECT channel FROM task_lease);

CREATE TABLE task_tenant (
    name       text        PRIMARY KEY,
    weight     integer     NOT NULL DEFAULT 100 CHECK (weight BETWEEN 1 AND 1000),
    version    bigint      NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- A task that came to its place later than by its creation, its release or its loss: promoted or put first by hand. Such a
-- place stands nowhere else, so the task is found by its id.
ALTER TABLE task_ready ADD COLUMN moved boolean NOT NULL DEFAULT false;
CREATE INDEX task_ready_moved ON task_ready (id) WHERE moved;

-- run_order NULL: claimed by a version that did not keep it. cost NULL: the task costs nothing.
ALTER TABLE task_lease ADD COLUMN run_order bigint, ADD COLUMN cost bigint;
ALTER TABLE task ADD COLUMN cost bigint;
ALTER TABLE channel ADD COLUMN max_age_ms bigint NOT NULL DEFAULT 0 CHECK (max_age_ms >= 0);

-- Units. Every movement is a ledger entry; quota is their sum for each tenant, kept by a trigger, so the two never differ.
-- A life of a task reserves once and settles or refunds once; running a task again begins its next life.
CREATE TABLE quota (
    tenant     text   PRIMARY KEY,
    unit_limit bigint CHECK (unit_limit >= 0),
    reserved   bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    spent      bigint NOT NULL DEFAULT 0 CHECK (spent >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE ledger_entry (
    entry_id   bigint      GENERATED ALWAYS AS IDENTITY,
    tenant     text        NOT NULL,
    task_id    uuid        NOT NULL,
    life       smallint    NOT NULL,
    kind       text        NOT NULL CHECK (kind IN ('reserve', 'settle', 'refund')),
    amount     bigint      NOT NULL CHECK (amount > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, life, kind)
);

CREATE UNIQUE INDEX ledger_entry_end ON ledger_entry (task_id, life) WHERE kind <> 'reserve';
CREATE INDEX ledger_entry_by_tenant ON ledger_entry (tenant, entry_id);

-- The present life of a task.
CREATE FUNCTION task_life(task uuid) RETURNS smallint
LANGUAGE sql STABLE
RETURN (SELECT max(life) FROM ledger_entry WHERE task_id = task AND kind = 'reserve');

CREATE FUNCTION task_sum_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM added) THEN
        INSERT INTO quota (tenant) SELECT DISTINCT tenant FROM added ORDER BY tenant ON CONFLICT DO NOTHING;
        PERFORM FROM quota WHERE tenant IN (SELECT tenant FROM added) ORDER BY tenant FOR UPDATE;
        UPDATE quota q SET reserved = q.reserved + a.reserved, spent = q.spent + a.spent
        FROM (SELECT tenant,
                     sum(CASE WHEN kind = 'reserve' THEN amount ELSE -amount END) AS reserved,
                     coalesce(sum(amount) FILTER (WHERE kind = 'settle'), 0) AS spent
              FROM added GROUP BY tenant) a
        WHERE q.tenant = a.tenant;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER ledger_entry_sum AFTER INSERT ON ledger_entry
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION task_sum_ledger();

-- Ends of tasks, one row for those of a statement that share tenant, channel and event: a fraction of the log of a row each.
CREATE TABLE task_outbox_batch (
    outbox_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event      text        NOT NULL,
    tenant     text        NOT NULL,
    channel    text        NOT NULL,
    task_ids   uuid[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Which channel a model's tasks run in.
CREATE TABLE route (
    model      text        PRIMARY KEY,
    channel    text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Events may also be of the kind `progress`; ends are told from task_outcome. What is stored comes from our own statements.
DO $$
DECLARE
    holder regclass;
BEGIN
    ALTER TABLE task_event DROP CONSTRAINT IF EXISTS task_event_kind_check;
    FOR holder IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'task_event'::regclass LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS task_event_kind_check', holder);
    END LOOP;
END
$$;

-- migrate:down

DROP TABLE route, task_outbox_batch, ledger_entry, quota, task_tenant, channel_turn, channel_mark;
DROP FUNCTION task_sum_ledger(), task_life(uuid);
DROP INDEX task_ready_moved;
ALTER TABLE channel DROP COLUMN max_age_ms;
ALTER TABLE task DROP COLUMN cost;
ALTER TABLE task_lease DROP COLUMN cost, DROP COLUMN run_order;
ALTER TABLE task_ready DROP COLUMN moved;
