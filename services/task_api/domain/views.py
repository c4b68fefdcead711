"""The JSON form of tasks, attempts and channels, as HTTP clients read it."""

import json
from datetime import datetime, timedelta
from typing import Any

from task_api.domain.model import Attempt, Channel, Task

_MILLISECOND = timedelta(milliseconds=1)


def task_view(task: Task) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "task_id": str(task.task_id),
        "channel": task.channel,
        "kind": task.kind,
        "payload": json.loads(task.payload),
        "payload_version": task.payload_version,
        "priority": task.priority,
        "state": task.state.value,
        "attempt_count": task.attempt_count,
        "max_attempts": task.max_attempts,
        "result": json.loads(task.result) if task.result else None,
        "error": task.error or None,
        "progress_percent": task.progress_percent,
        "cancel_requested": task.cancel_requested,
        "worker": task.worker or None,
        "cost": task.cost,
        **{
            name: _instant(getattr(task, name))
            for name in ("created_at", "started_at", "finished_at", "due_at", "deadline_at")
        },
    }


def attempt_view(attempt: Attempt) -> dict[str, Any]:
    """Return the JSON form."""
    return {
        "epoch": attempt.epoch,
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        "error_class": attempt.error_class or None,
        "error": attempt.error or None,
        "started_at": _instant(attempt.started_at),
        "finished_at": _instant(attempt.finished_at),
    }


def channel_view(channel: Channel) -> dict[str, Any]:
    """Return the JSON form."""
    policy, load = channel.policy, channel.load
    return {
        "name": policy.name,
        "concurrency": policy.concurrency,
        "max_backlog": policy.max_backlog,
        "max_attempts": policy.max_attempts,
        "paused": policy.paused,
        "version": policy.version,
        "max_age_ms": policy.max_age // _MILLISECOND,
        "ready_count": load.ready,
        "deferred_count": load.deferred,
        "running_count": load.running,
        "oldest_ready_ms": load.oldest_ready // _MILLISECOND,
    }


def _instant(instant: datetime | None) -> str | None:
    return instant.isoformat().replace("+00:00", "Z") if instant else None
