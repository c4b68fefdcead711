-- End a detach that was interrupted. {name}: its quoted name.
ALTER TABLE ingest_inbox DETACH PARTITION {name} FINALIZE
