"""The HTTP edge: tasks and channels as JSON, text events as SSE, sessions, health, and the console's page."""
