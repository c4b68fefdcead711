import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sluicegate.errors.v1 import bounds_pb2 as _bounds_pb2
from sluicegate.errors.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RenewOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RENEW_OUTCOME_UNSPECIFIED: _ClassVar[RenewOutcome]
    RENEW_OUTCOME_OK: _ClassVar[RenewOutcome]
    RENEW_OUTCOME_LOST: _ClassVar[RenewOutcome]
    RENEW_OUTCOME_MAX_LIFETIME: _ClassVar[RenewOutcome]
RENEW_OUTCOME_UNSPECIFIED: RenewOutcome
RENEW_OUTCOME_OK: RenewOutcome
RENEW_OUTCOME_LOST: RenewOutcome
RENEW_OUTCOME_MAX_LIFETIME: RenewOutcome

class Lease(_message.Message):
    __slots__ = ("token", "fence", "remaining_ms", "weight", "ticket")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    token: str
    fence: int
    remaining_ms: int
    weight: int
    ticket: bytes
    def __init__(self, token: _Optional[str] = ..., fence: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., weight: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class AcquireRequest(_message.Message):
    __slots__ = ("pool", "token", "scopes", "weight", "ttl_ms", "owner", "job", "wait_ms", "tenant", "priority")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    pool: str
    token: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    ttl_ms: int
    owner: str
    job: str
    wait_ms: int
    tenant: str
    priority: int
    def __init__(self, pool: _Optional[str] = ..., token: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ..., wait_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class AcquireResponse(_message.Message):
    __slots__ = ("lease", "waited_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    waited_ms: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., waited_ms: _Optional[int] = ...) -> None: ...

class AcquireBatchRequest(_message.Message):
    __slots__ = ("pool", "tokens", "scopes", "weight", "ttl_ms", "owner", "job")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    pool: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    ttl_ms: int
    owner: str
    job: str
    def __init__(self, pool: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class AcquireBatchResponse(_message.Message):
    __slots__ = ("leases", "limiting_scope", "retry_after_ms")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    LIMITING_SCOPE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    limiting_scope: str
    retry_after_ms: int
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., limiting_scope: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("pool", "items")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    items: _containers.RepeatedCompositeFieldContainer[RenewItem]
    def __init__(self, pool: _Optional[str] = ..., items: _Optional[_Iterable[_Union[RenewItem, _Mapping]]] = ...) -> None: ...

class RenewItem(_message.Message):
    __slots__ = ("token", "ttl_ms", "weight", "ticket")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    token: str
    ttl_ms: int
    weight: int
    ticket: bytes
    def __init__(self, token: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., weight: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RenewResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RenewResult, _Mapping]]] = ...) -> None: ...

class RenewResult(_message.Message):
    __slots__ = ("token", "outcome", "remaining_ms", "weight", "ticket")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    token: str
    outcome: RenewOutcome
    remaining_ms: int
    weight: int
    ticket: bytes
    def __init__(self, token: _Optional[str] = ..., outcome: _Optional[_Union[RenewOutcome, str]] = ..., remaining_ms: _Optional[int] = ..., weight: _Optional[int] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("pool", "tokens")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pool: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ReleaseResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ReleaseResult, _Mapping]]] = ...) -> None: ...

class ReleaseResult(_message.Message):
    __slots__ = ("token", "freed")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    token: str
    freed: bool
    def __init__(self, token: _Optional[str] = ..., freed: _Optional[bool] = ...) -> None: ...

class TenantShare(_message.Message):
    __slots__ = ("tenant", "weight")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    weight: int
    def __init__(self, tenant: _Optional[str] = ..., weight: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SessionItem]
    def __init__(self, items: _Optional[_Iterable[_Union[SessionItem, _Mapping]]] = ...) -> None: ...

class SessionItem(_message.Message):
    __slots__ = ("request_id", "acquire", "renew", "release")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    acquire: AcquireRequest
    renew: RenewRequest
    release: ReleaseRequest
    def __init__(self, request_id: _Optional[int] = ..., acquire: _Optional[_Union[AcquireRequest, _Mapping]] = ..., renew: _Optional[_Union[RenewRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SessionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SessionResult, _Mapping]]] = ...) -> None: ...

class SessionResult(_message.Message):
    __slots__ = ("request_id", "acquire", "renew", "release", "error", "loss")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    acquire: AcquireResponse
    renew: RenewResponse
    release: ReleaseResponse
    error: SessionError
    loss: SessionLoss
    def __init__(self, request_id: _Optional[int] = ..., acquire: _Optional[_Union[AcquireResponse, _Mapping]] = ..., renew: _Optional[_Union[RenewResponse, _Mapping]] = ..., release: _Optional[_Union[ReleaseResponse, _Mapping]] = ..., error: _Optional[_Union[SessionError, _Mapping]] = ..., loss: _Optional[_Union[SessionLoss, _Mapping]] = ...) -> None: ...

class SessionError(_message.Message):
    __slots__ = ("reason", "message", "retry_after_ms", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: _errors_pb2.Reason
    message: str
    retry_after_ms: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[_Union[_errors_pb2.Reason, str]] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SessionLoss(_message.Message):
    __slots__ = ("pool", "token")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    token: str
    def __init__(self, pool: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("pool", "scope", "capacity", "max_lifetime_ms", "version", "paused", "updated_at", "max_waiting", "max_waiting_per_tenant", "shares")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_PER_TENANT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    scope: str
    capacity: int
    max_lifetime_ms: int
    version: int
    paused: bool
    updated_at: _timestamp_pb2.Timestamp
    max_waiting: int
    max_waiting_per_tenant: int
    shares: _containers.RepeatedCompositeFieldContainer[TenantShare]
    def __init__(self, pool: _Optional[str] = ..., scope: _Optional[str] = ..., capacity: _Optional[int] = ..., max_lifetime_ms: _Optional[int] = ..., version: _Optional[int] = ..., paused: _Optional[bool] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_waiting: _Optional[int] = ..., max_waiting_per_tenant: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[TenantShare, _Mapping]]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("pool", "scope", "capacity", "max_lifetime_ms", "expected_version", "actor", "reason", "max_waiting", "max_waiting_per_tenant", "shares")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    MAX_LIFETIME_MS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_PER_TENANT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    scope: str
    capacity: int
    max_lifetime_ms: int
    expected_version: int
    actor: str
    reason: str
    max_waiting: int
    max_waiting_per_tenant: int
    shares: _containers.RepeatedCompositeFieldContainer[TenantShare]
    def __init__(self, pool: _Optional[str] = ..., scope: _Optional[str] = ..., capacity: _Optional[int] = ..., max_lifetime_ms: _Optional[int] = ..., expected_version: _Optional[int] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., max_waiting: _Optional[int] = ..., max_waiting_per_tenant: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[TenantShare, _Mapping]]] = ...) -> None: ...

class SetPolicyResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class GetPolicyResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class PausePoolRequest(_message.Message):
    __slots__ = ("pool", "actor", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    actor: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PausePoolResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class ResumePoolRequest(_message.Message):
    __slots__ = ("pool", "actor", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    actor: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumePoolResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class ListHoldersRequest(_message.Message):
    __slots__ = ("pool", "page_size", "page_token")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    page_size: int
    page_token: str
    def __init__(self, pool: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("token", "owner", "job", "scopes", "weight", "age_ms", "remaining_ms", "fence")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    token: str
    owner: str
    job: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    age_ms: int
    remaining_ms: int
    fence: int
    def __init__(self, token: _Optional[str] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., age_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., fence: _Optional[int] = ...) -> None: ...

class ListHoldersResponse(_message.Message):
    __slots__ = ("holders", "next_page_token")
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    next_page_token: str
    def __init__(self, holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListWaitersRequest(_message.Message):
    __slots__ = ("pool", "page_size", "page_token")
    POOL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    page_size: int
    page_token: str
    def __init__(self, pool: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Waiter(_message.Message):
    __slots__ = ("token", "owner", "job", "tenant", "priority", "scopes", "weight", "position", "age_ms", "remaining_ms")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    token: str
    owner: str
    job: str
    tenant: str
    priority: int
    scopes: _containers.RepeatedScalarFieldContainer[str]
    weight: int
    position: int
    age_ms: int
    remaining_ms: int
    def __init__(self, token: _Optional[str] = ..., owner: _Optional[str] = ..., job: _Optional[str] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ..., scopes: _Optional[_Iterable[str]] = ..., weight: _Optional[int] = ..., position: _Optional[int] = ..., age_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ...) -> None: ...

class ListWaitersResponse(_message.Message):
    __slots__ = ("waiters", "next_page_token", "total")
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    waiters: _containers.RepeatedCompositeFieldContainer[Waiter]
    next_page_token: str
    total: int
    def __init__(self, waiters: _Optional[_Iterable[_Union[Waiter, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class DrainPoolRequest(_message.Message):
    __slots__ = ("pool", "actor", "reason", "wait_ms")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    actor: str
    reason: str
    wait_ms: int
    def __init__(self, pool: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class DrainPoolResponse(_message.Message):
    __slots__ = ("held", "scopes", "waiting")
    HELD_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    held: int
    scopes: _containers.RepeatedCompositeFieldContainer[ScopeState]
    waiting: int
    def __init__(self, held: _Optional[int] = ..., scopes: _Optional[_Iterable[_Union[ScopeState, _Mapping]]] = ..., waiting: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("pool", "token")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    pool: str
    token: str
    def __init__(self, pool: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class ScopeState(_message.Message):
    __slots__ = ("scope", "capacity", "used", "holder_count", "next_expiry_ms", "waiting_count")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    HOLDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_COUNT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    capacity: int
    used: int
    holder_count: int
    next_expiry_ms: int
    waiting_count: int
    def __init__(self, scope: _Optional[str] = ..., capacity: _Optional[int] = ..., used: _Optional[int] = ..., holder_count: _Optional[int] = ..., next_expiry_ms: _Optional[int] = ..., waiting_count: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("scopes", "paused", "fence", "verdict", "waiter")
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WAITER_FIELD_NUMBER: _ClassVar[int]
    scopes: _containers.RepeatedCompositeFieldContainer[ScopeState]
    paused: bool
    fence: int
    verdict: str
    waiter: Waiter
    def __init__(self, scopes: _Optional[_Iterable[_Union[ScopeState, _Mapping]]] = ..., paused: _Optional[bool] = ..., fence: _Optional[int] = ..., verdict: _Optional[str] = ..., waiter: _Optional[_Union[Waiter, _Mapping]] = ...) -> None: ...

class ForceReleaseRequest(_message.Message):
    __slots__ = ("pool", "token", "actor", "reason")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    pool: str
    token: str
    actor: str
    reason: str
    def __init__(self, pool: _Optional[str] = ..., token: _Optional[str] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ForceReleaseResponse(_message.Message):
    __slots__ = ("freed", "fence")
    FREED_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    freed: bool
    fence: int
    def __init__(self, freed: _Optional[bool] = ..., fence: _Optional[int] = ...) -> None: ...
