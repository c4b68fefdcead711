"""``OperatorService``: for people who run it."""

from datetime import timedelta
from typing import Any

from sluicegate.operator.v1 import operator_pb2, operator_pb2_grpc
from task_api.domain.channels import Channels
from task_api.domain.model import AuditRow, Channel, ChannelPolicy, LedgerEntry, Route, Tenant
from task_api.domain.operations import Change, Operations, TaskFilter, tenant_of
from task_api.domain.tasks import parse_task_id
from task_api.servicer.wire import instant, page_number, timestamp

_MILLISECOND = timedelta(milliseconds=1)
_DEFAULT_AUDIT_PAGE = 100


class OperatorServicer(operator_pb2_grpc.OperatorServiceServicer):
    """``OperatorService``, for people who run it."""

    def __init__(self, channels: Channels, operations: Operations) -> None:
        self._channels = channels
        self._operations = operations

    async def SaveChannel(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        policy = ChannelPolicy(
            name=request.channel.name,
            concurrency=request.channel.concurrency,
            max_backlog=request.channel.max_backlog,
            max_attempts=request.channel.max_attempts,
            paused=request.channel.paused,
            max_age=request.channel.max_age_ms * _MILLISECOND,
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

    async def SaveTenant(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        asked = request.tenant
        tenant = tenant_of(asked.name, asked.weight, asked.quota if asked.HasField("quota") else None)
        saved = await self._operations.save_tenant(tenant, _change(request))
        return operator_pb2.SaveTenantResponse(tenant=_tenant(saved))

    async def ListTenants(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del request, context
        return operator_pb2.ListTenantsResponse(tenants=map(_tenant, await self._operations.tenants()))

    async def ListLedger(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_AUDIT_PAGE
        entries = await self._operations.ledger(
            request.tenant, before=page_number(request.page_token), limit=limit
        )
        more = str(entries[-1].entry_id) if len(entries) == limit else ""
        return operator_pb2.ListLedgerResponse(entries=map(_entry, entries), next_page_token=more)

    async def SaveRoute(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        route = Route(request.route.model, request.route.channel, request.route.version)
        saved = await self._operations.save_route(route, _change(request))
        return operator_pb2.SaveRouteResponse(route=_route(saved))

    async def DeleteRoute(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        await self._operations.delete_route(request.model, _change(request))
        return operator_pb2.DeleteRouteResponse()

    async def ListRoutes(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del request, context
        return operator_pb2.ListRoutesResponse(routes=map(_route, await self._operations.routes()))

    async def DispatchTask(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        await self._operations.dispatch(parse_task_id(request.task_id), _change(request))
        return operator_pb2.DispatchTaskResponse()

    async def CancelTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        changed, more = await self._operations.cancel_tasks(
            _filter(request.filter), request.limit, _change(request)
        )
        return operator_pb2.CancelTasksResponse(changed_count=changed, more=more)

    async def RetryTasks(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        changed, more = await self._operations.retry_tasks(
            _filter(request.filter), request.limit, _change(request)
        )
        return operator_pb2.RetryTasksResponse(changed_count=changed, more=more)

    async def ListAudit(self, request: Any, context: Any) -> Any:  # noqa: N802, D102
        del context
        limit = request.page_size or _DEFAULT_AUDIT_PAGE
        rows = await self._channels.audit(before=page_number(request.page_token), limit=limit)
        more = str(rows[-1].audit_id) if len(rows) == limit else ""
        return operator_pb2.ListAuditResponse(rows=map(_audit_row, rows), next_page_token=more)


def _change(request: Any) -> Change:
    return Change(request.actor, request.reason)


def _filter(asked: Any) -> TaskFilter:
    return TaskFilter(
        tenant=asked.tenant,
        channel=asked.channel,
        kind=asked.kind,
        created_from=instant(asked, "created_from"),
        created_before=instant(asked, "created_before"),
    )


def _tenant(tenant: Tenant) -> Any:
    return operator_pb2.Tenant(
        name=tenant.name,
        weight=tenant.weight,
        quota=tenant.quota,
        reserved=tenant.reserved,
        spent=tenant.spent,
        version=tenant.version,
    )


def _entry(entry: LedgerEntry) -> Any:
    return operator_pb2.LedgerEntry(
        entry_id=entry.entry_id,
        task_id=str(entry.task_id),
        life=entry.life,
        kind=entry.kind,
        amount=entry.amount,
        created_at=timestamp(entry.created_at),
    )


def _route(route: Route) -> Any:
    return operator_pb2.Route(model=route.model, channel=route.channel, version=route.version)


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
        max_age_ms=policy.max_age // _MILLISECOND,
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
