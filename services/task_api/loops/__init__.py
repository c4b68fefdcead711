"""Timed roles of task_api."""
