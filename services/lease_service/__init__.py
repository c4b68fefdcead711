"""Owns every slot: acquires, renews, releases, reaps, and keeps the policies and the audit of pools.

Owns Redis keys ``slots:`` and the tables ``slot_policy`` and ``slot_audit``. Redis time is its only clock. It must
never grant above a capacity, revive an expired lease, or grant while it can't read a policy or reach Redis.
"""
