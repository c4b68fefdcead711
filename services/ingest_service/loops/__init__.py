"""Timed roles of ingest_service, one a file."""
