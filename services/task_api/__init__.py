"""Durable tasks: creates them, hands them to workers under a fenced claim, and streams their text to browsers.

Owns the tables ``task*`` and ``channel`` and the Redis names ``task:``. It must never run a task's work itself, never
write without checking the claim, and never keep truth in Redis.
"""
