"""The `sluicegate` command: runs everything on one machine, and talks to a running system."""
