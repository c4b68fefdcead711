-- migrate:up
SET lock_timeout = '2s';
SET statement_timeout = '30s';

-- Rows of the quarantine can be replayed. Code of before goes on: it writes neither column.

ALTER TABLE collection_quarantine
    ADD COLUMN replayed_at timestamptz,
    ADD COLUMN replayed_by text NOT NULL DEFAULT '';

-- migrate:down

SET lock_timeout = '2s';

ALTER TABLE collection_quarantine DROP COLUMN replayed_at, DROP COLUMN replayed_by;
