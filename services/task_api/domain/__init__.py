"""Tasks: value types, rules and use-cases; no IO, no wire format."""
