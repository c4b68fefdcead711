"""The only place that speaks to Redis and PostgreSQL."""
