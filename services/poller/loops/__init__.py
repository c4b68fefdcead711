"""Timed roles of poller, one file each."""
