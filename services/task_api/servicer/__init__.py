"""The gRPC edge: proto to domain, call, domain to proto. Field bounds are checked before a servicer is called."""
