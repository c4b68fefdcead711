"""The `sluicegate` command: runs everything on one machine, and talks to a running system."""

import os

# `up` starts processes while gRPC threads run; its children never use the parent's gRPC. Read when gRPC is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
