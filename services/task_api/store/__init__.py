"""Where task_api keeps things: PostgreSQL is the truth, Redis carries wake-ups."""
