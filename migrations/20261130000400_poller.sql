-- migrate:up

-- Owned by poller: poll_setting, poll_audit.

-- What operators change at run time: one row per name. The poller reads it through a cache of 5 s.
CREATE TABLE poll_setting (
    name       text        NOT NULL PRIMARY KEY,
    value      text        NOT NULL,
    actor      text        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT poll_setting_mode CHECK (name <> 'ingest_mode' OR value IN ('sync', 'async'))
);

INSERT INTO poll_setting (name, value, actor) VALUES ('ingest_mode', 'sync', 'migration');

-- Every change of a setting: who, why, from what to what. Rows are never changed.
CREATE TABLE poll_audit (
    audit_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL,
    previous   text        NOT NULL,
    value      text        NOT NULL,
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- migrate:down

DROP TABLE IF EXISTS poll_audit;
DROP TABLE IF EXISTS poll_setting;
