"""The public Python SDK.

`slots` holds slots of the lease service, `worker` runs handlers for tasks, `messages` reads and writes what travels
through the broker.
"""
