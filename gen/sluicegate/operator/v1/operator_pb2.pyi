import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sluicegate.errors.v1 import bounds_pb2 as _bounds_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Channel(_message.Message):
    __slots__ = ("name", "concurrency", "max_backlog", "max_attempts", "paused", "version", "ready_count", "deferred_count", "running_count", "oldest_ready_ms", "max_age_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    READY_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_READY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    concurrency: int
    max_backlog: int
    max_attempts: int
    paused: bool
    version: int
    ready_count: int
    deferred_count: int
    running_count: int
    oldest_ready_ms: int
    max_age_ms: int
    def __init__(self, name: _Optional[str] = ..., concurrency: _Optional[int] = ..., max_backlog: _Optional[int] = ..., max_attempts: _Optional[int] = ..., paused: _Optional[bool] = ..., version: _Optional[int] = ..., ready_count: _Optional[int] = ..., deferred_count: _Optional[int] = ..., running_count: _Optional[int] = ..., oldest_ready_ms: _Optional[int] = ..., max_age_ms: _Optional[int] = ...) -> None: ...

class SaveChannelRequest(_message.Message):
    __slots__ = ("channel", "actor", "reason")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    channel: Channel
    actor: str
    reason: str
    def __init__(self, channel: _Optional[_Union[Channel, _Mapping]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SaveChannelResponse(_message.Message):
    __slots__ = ("channel",)
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    channel: Channel
    def __init__(self, channel: _Optional[_Union[Channel, _Mapping]] = ...) -> None: ...

class ListChannelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListChannelsResponse(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    def __init__(self, channels: _Optional[_Iterable[_Union[Channel, _Mapping]]] = ...) -> None: ...

class PauseChannelRequest(_message.Message):
    __slots__ = ("name", "actor", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    actor: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseChannelResponse(_message.Message):
    __slots__ = ("channel",)
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    channel: Channel
    def __init__(self, channel: _Optional[_Union[Channel, _Mapping]] = ...) -> None: ...

class ResumeChannelRequest(_message.Message):
    __slots__ = ("name", "actor", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    actor: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeChannelResponse(_message.Message):
    __slots__ = ("channel",)
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    channel: Channel
    def __init__(self, channel: _Optional[_Union[Channel, _Mapping]] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("rows", "next_page_token")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[AuditRow]
    next_page_token: str
    def __init__(self, rows: _Optional[_Iterable[_Union[AuditRow, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AuditRow(_message.Message):
    __slots__ = ("audit_id", "changed_at", "actor", "action", "subject", "reason", "before_json", "after_json")
    AUDIT_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BEFORE_JSON_FIELD_NUMBER: _ClassVar[int]
    AFTER_JSON_FIELD_NUMBER: _ClassVar[int]
    audit_id: int
    changed_at: _timestamp_pb2.Timestamp
    actor: str
    action: str
    subject: str
    reason: str
    before_json: str
    after_json: str
    def __init__(self, audit_id: _Optional[int] = ..., changed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., before_json: _Optional[str] = ..., after_json: _Optional[str] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ("name", "weight", "quota", "reserved", "spent", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: int
    quota: int
    reserved: int
    spent: int
    version: int
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[int] = ..., quota: _Optional[int] = ..., reserved: _Optional[int] = ..., spent: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class SaveTenantRequest(_message.Message):
    __slots__ = ("tenant", "actor", "reason")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    actor: str
    reason: str
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SaveTenantResponse(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[Tenant]
    def __init__(self, tenants: _Optional[_Iterable[_Union[Tenant, _Mapping]]] = ...) -> None: ...

class ListLedgerRequest(_message.Message):
    __slots__ = ("tenant", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLedgerResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[LedgerEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[LedgerEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class LedgerEntry(_message.Message):
    __slots__ = ("entry_id", "task_id", "life", "kind", "amount", "created_at")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    entry_id: int
    task_id: str
    life: int
    kind: str
    amount: int
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, entry_id: _Optional[int] = ..., task_id: _Optional[str] = ..., life: _Optional[int] = ..., kind: _Optional[str] = ..., amount: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("model", "channel", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    channel: str
    version: int
    def __init__(self, model: _Optional[str] = ..., channel: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class SaveRouteRequest(_message.Message):
    __slots__ = ("route", "actor", "reason")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    route: Route
    actor: str
    reason: str
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SaveRouteResponse(_message.Message):
    __slots__ = ("route",)
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    route: Route
    def __init__(self, route: _Optional[_Union[Route, _Mapping]] = ...) -> None: ...

class DeleteRouteRequest(_message.Message):
    __slots__ = ("model", "actor", "reason")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    model: str
    actor: str
    reason: str
    def __init__(self, model: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteRouteResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRoutesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRoutesResponse(_message.Message):
    __slots__ = ("routes",)
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    def __init__(self, routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ...) -> None: ...

class DispatchTaskRequest(_message.Message):
    __slots__ = ("task_id", "actor", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    actor: str
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DispatchTaskResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TaskFilter(_message.Message):
    __slots__ = ("tenant", "channel", "kind", "created_from", "created_before")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CREATED_FROM_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    channel: str
    kind: str
    created_from: _timestamp_pb2.Timestamp
    created_before: _timestamp_pb2.Timestamp
    def __init__(self, tenant: _Optional[str] = ..., channel: _Optional[str] = ..., kind: _Optional[str] = ..., created_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CancelTasksRequest(_message.Message):
    __slots__ = ("filter", "actor", "reason", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: TaskFilter
    actor: str
    reason: str
    limit: int
    def __init__(self, filter: _Optional[_Union[TaskFilter, _Mapping]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class CancelTasksResponse(_message.Message):
    __slots__ = ("changed_count", "more")
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    changed_count: int
    more: bool
    def __init__(self, changed_count: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class RetryTasksRequest(_message.Message):
    __slots__ = ("filter", "actor", "reason", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: TaskFilter
    actor: str
    reason: str
    limit: int
    def __init__(self, filter: _Optional[_Union[TaskFilter, _Mapping]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class RetryTasksResponse(_message.Message):
    __slots__ = ("changed_count", "more")
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    changed_count: int
    more: bool
    def __init__(self, changed_count: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...
