"""Engines for `sluicegate up` and the tests: PostgreSQL, Valkey, nsqd, migrations; started and ended by us."""
