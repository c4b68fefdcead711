-- migrate:up

SET LOCAL lock_timeout = '5s';
SET LOCAL statement_timeout = '60s';

-- Owned by ingest_service: report.account_v1. Which accounts there are, for exports. A version of the view is never
-- changed, only followed by another.
CREATE VIEW report.account_v1 AS
SELECT account_id, name, time_zone, enabled
FROM account;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'sluicegate_report') THEN
        GRANT SELECT ON report.account_v1 TO sluicegate_report;
    END IF;
END
$$;

-- migrate:down

DROP VIEW IF EXISTS report.account_v1;
