"""The gateway simulator: a demo fleet behind every implemented platform's shape, with faults on demand."""
