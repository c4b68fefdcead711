"""Engines of the lease service: leases in Redis, policies and audit in PostgreSQL."""
