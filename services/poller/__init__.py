"""Polls cards through their gateways, each account inside its limit, and hands on what it observes.

Owns the tables ``poll_*`` and the Redis keys ``poll:``; publishes ``card.ingest`` and ``card.collection``. It reads
card facts from ``card:`` and never writes them, and it never judges a reading: that is the business of
ingest_service.
"""
