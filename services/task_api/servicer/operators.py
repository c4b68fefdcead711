"""``OperatorService``: for people who run it."""

from datetime import timedelta
from typing import Any

from sluicegate.operator.v1 import operator_pb2, operator_pb2_grpc
from task_api.domain.channels import Channels
from task_api.domain.model import AuditRow, Channel, ChannelPolicy
from task_api.servicer.wire import page_number, timestamp

_MILLISECOND = timedelta(milliseconds=1)
_DEFAULT_AUDIT_PAGE = 100


class OperatorServicer(operator_pb2_grpc.OperatorServiceServicer):
    """``OperatorService``, for people who run it."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def SaveChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        policy = ChannelPolicy(
            name=request.channel.name,
            concurrency=request.channel.concurrency,
            max_backlog=request.channel.max_backlog,
            max_attempts=request.channel.max_attempts,
            paused=request.channel.paused,
        )
        saved = await self._channels.save(policy, actor=request.actor, reason=request.reason)
        return operator_pb2.SaveChannelResponse(channel=_channel(Channel(saved)))

    async def ListChannels(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del request, context
        return operator_pb2.ListChannelsResponse(channels=map(_channel, await self._channels.list()))

    async def PauseChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        saved = await self._channels.pause(
            request.name, paused=True, actor=request.actor, reason=request.reason
        )
        return operator_pb2.PauseChannelResponse(channel=_channel(Channel(saved)))

    async def ResumeChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        saved = await self._channels.pause(
            request.name, paused=False, actor=request.actor, reason=request.reason
        )
        return operator_pb2.ResumeChannelResponse(channel=_channel(Channel(saved)))

    async def ListAudit(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_AUDIT_PAGE
        rows = await self._channels.audit(before=page_number(request.page_token), limit=limit)
        more = str(rows[-1].audit_id) if len(rows) == limit else ""
        return operator_pb2.ListAuditResponse(rows=map(_audit_row, rows), next_page_token=more)


def _channel(channel: Channel) -> Any:
    policy, load = channel.policy, channel.load
    return operator_pb2.Channel(
        name=policy.name,
        concurrency=policy.concurrency,
        max_backlog=policy.max_backlog,
        max_attempts=policy.max_attempts,
        paused=policy.paused,
        version=policy.version,
        ready_count=load.ready,
        deferred_count=load.deferred,
        running_count=load.running,
        oldest_ready_ms=load.oldest_ready // _MILLISECOND,
    )


def _audit_row(row: AuditRow) -> Any:
    return operator_pb2.AuditRow(
        audit_id=row.audit_id,
        changed_at=timestamp(row.changed_at),
        actor=row.actor,
        action=row.action,
        subject=row.subject,
        reason=row.reason,
        before_json=row.before,
        after_json=row.after,
    )
