-- migrate:up
SET lock_timeout = '2s';
SET statement_timeout = '30s';

-- Owned by lease_service: rules of the wait queue, beside the capacity that they belong to.
ALTER TABLE slot_policy
    ADD COLUMN max_waiting            integer NOT NULL DEFAULT 20000, -- most requests that wait in the pool
    ADD COLUMN max_waiting_per_tenant integer NOT NULL DEFAULT 20000, -- most of one tenant
    ADD COLUMN tenant_shares          jsonb   NOT NULL DEFAULT '{}',  -- tenant -> weight; others have 1
    ADD CONSTRAINT slot_policy_waiting CHECK (max_waiting BETWEEN 0 AND 100000 AND max_waiting_per_tenant BETWEEN 0 AND 100000),
    ADD CONSTRAINT slot_policy_shares CHECK (jsonb_typeof(tenant_shares) = 'object');

-- migrate:down

ALTER TABLE slot_policy
    DROP CONSTRAINT slot_policy_shares,
    DROP CONSTRAINT slot_policy_waiting,
    DROP COLUMN tenant_shares,
    DROP COLUMN max_waiting_per_tenant,
    DROP COLUMN max_waiting;
