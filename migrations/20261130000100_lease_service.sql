-- migrate:up

-- Owned by lease_service: slot_policy, slot_audit.

-- Capacity of every scope; the only place where one lives. A version rises by one with every change of any scope of the
-- pool, under an advisory lock on the pool, so that versions of a pool are committed in their order.
CREATE TABLE slot_policy (
    pool            text        NOT NULL,
    scope           text        NOT NULL,
    capacity        integer     NOT NULL,
    max_lifetime_ms bigint      NOT NULL DEFAULT 0,     -- longest life of a lease with renewals; 0 is unlimited
    paused          boolean     NOT NULL DEFAULT false, -- the same in all scopes of a pool
    longest_ttl_ms  bigint      NOT NULL DEFAULT 60000, -- longest ttl ever granted in the pool: how long it relearns after Redis lost its data
    version         bigint      NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT slot_policy_key PRIMARY KEY (pool, scope),
    CONSTRAINT slot_policy_names CHECK (length(pool) BETWEEN 1 AND 128 AND length(scope) BETWEEN 1 AND 128),
    CONSTRAINT slot_policy_capacity CHECK (capacity BETWEEN 0 AND 1000000),
    CONSTRAINT slot_policy_times CHECK (max_lifetime_ms >= 0 AND longest_ttl_ms > 0)
);

-- What happened to leases and policies. event_id is the id of the event in the pool's Redis stream, or policy-<version>;
-- kind and token belong to the key so that a stream that starts again after a step of the clock loses nothing.
CREATE TABLE slot_audit (
    pool     text        NOT NULL,
    event_id text        NOT NULL,
    kind     text        NOT NULL,
    token    text        NOT NULL,
    at       timestamptz NOT NULL,
    fence    bigint      NOT NULL,
    weight   integer     NOT NULL,
    scopes   text[]      NOT NULL,
    owner    text        NOT NULL,
    job      text        NOT NULL,
    note     text        NOT NULL,
    CONSTRAINT slot_audit_key PRIMARY KEY (pool, event_id, kind, token)
);

CREATE INDEX slot_audit_by_time ON slot_audit (at);

-- migrate:down

DROP TABLE slot_audit;
DROP TABLE slot_policy;
