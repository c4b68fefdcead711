"""Timed roles of the lease service; any number of replicas may run each at once."""
