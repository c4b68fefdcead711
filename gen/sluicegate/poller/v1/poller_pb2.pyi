import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sluicegate.errors.v1 import bounds_pb2 as _bounds_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IngestMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INGEST_MODE_UNSPECIFIED: _ClassVar[IngestMode]
    INGEST_MODE_SYNC: _ClassVar[IngestMode]
    INGEST_MODE_ASYNC: _ClassVar[IngestMode]
INGEST_MODE_UNSPECIFIED: IngestMode
INGEST_MODE_SYNC: IngestMode
INGEST_MODE_ASYNC: IngestMode

class GetModeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetModeResponse(_message.Message):
    __slots__ = ("mode", "actor", "updated_at")
    MODE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    mode: IngestMode
    actor: str
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, mode: _Optional[_Union[IngestMode, str]] = ..., actor: _Optional[str] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SetModeRequest(_message.Message):
    __slots__ = ("mode", "actor", "reason")
    MODE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    mode: IngestMode
    actor: str
    reason: str
    def __init__(self, mode: _Optional[_Union[IngestMode, str]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class SetModeResponse(_message.Message):
    __slots__ = ("mode", "previous")
    MODE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    mode: IngestMode
    previous: IngestMode
    def __init__(self, mode: _Optional[_Union[IngestMode, str]] = ..., previous: _Optional[_Union[IngestMode, str]] = ...) -> None: ...

class PollCardRequest(_message.Message):
    __slots__ = ("card_id",)
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    card_id: str
    def __init__(self, card_id: _Optional[str] = ...) -> None: ...

class PollCardResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[PollStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[PollStep, _Mapping]]] = ...) -> None: ...

class PollStep(_message.Message):
    __slots__ = ("kind", "observation_id", "outcome", "message", "latency_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    observation_id: str
    outcome: str
    message: str
    latency_ms: int
    def __init__(self, kind: _Optional[str] = ..., observation_id: _Optional[str] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ..., latency_ms: _Optional[int] = ...) -> None: ...

class GetBacklogRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBacklogResponse(_message.Message):
    __slots__ = ("topics", "due_card_count", "oldest_due_ms", "paused", "pause_reason", "broker_known")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DUE_CARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    BROKER_KNOWN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicBacklog]
    due_card_count: int
    oldest_due_ms: int
    paused: bool
    pause_reason: str
    broker_known: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicBacklog, _Mapping]]] = ..., due_card_count: _Optional[int] = ..., oldest_due_ms: _Optional[int] = ..., paused: _Optional[bool] = ..., pause_reason: _Optional[str] = ..., broker_known: _Optional[bool] = ...) -> None: ...

class TopicBacklog(_message.Message):
    __slots__ = ("topic", "channel", "depth", "in_flight_count", "deferred_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    channel: str
    depth: int
    in_flight_count: int
    deferred_count: int
    def __init__(self, topic: _Optional[str] = ..., channel: _Optional[str] = ..., depth: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., deferred_count: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("accounts",)
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[AccountStatus]
    def __init__(self, accounts: _Optional[_Iterable[_Union[AccountStatus, _Mapping]]] = ...) -> None: ...

class AccountStatus(_message.Message):
    __slots__ = ("account_id", "card_count", "due_card_count", "held_slots", "in_flight_count", "success_count", "failure_count", "blocked_reason")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    CARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUE_CARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    HELD_SLOTS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_REASON_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    card_count: int
    due_card_count: int
    held_slots: int
    in_flight_count: int
    success_count: int
    failure_count: int
    blocked_reason: str
    def __init__(self, account_id: _Optional[str] = ..., card_count: _Optional[int] = ..., due_card_count: _Optional[int] = ..., held_slots: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., success_count: _Optional[int] = ..., failure_count: _Optional[int] = ..., blocked_reason: _Optional[str] = ...) -> None: ...
