"""Accounts, cards, and observations applied exactly once in effect.

Owns the tables ``account*``, ``card*``, ``usage_*`` and ``ingest_*``, and in Redis ``ingest:`` and ``card:`` (card
facts, written through after each commit). Consumes ``card.ingest``; publishes ``card.collection`` and ``card.event``.
Must never apply an observation outside the one batched apply, write another service's tables, or finish a message
whose effect or collection record could still be lost.
"""
