"""What ingest_service keeps: PostgreSQL for the truth, Redis for what saves a trip."""
