-- Mark events as published, in the transaction that locked them. $1 bigint[] ids; $2 timestamptz now.
UPDATE ingest_outbox SET published_at = $2 WHERE outbox_id = ANY ($1::bigint[])
