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

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_APPLIED: _ClassVar[Outcome]
    OUTCOME_DUPLICATE: _ClassVar[Outcome]
    OUTCOME_STALE: _ClassVar[Outcome]
    OUTCOME_NOT_FOUND: _ClassVar[Outcome]
    OUTCOME_TOO_OLD: _ClassVar[Outcome]
    OUTCOME_QUARANTINED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_APPLIED: Outcome
OUTCOME_DUPLICATE: Outcome
OUTCOME_STALE: Outcome
OUTCOME_NOT_FOUND: Outcome
OUTCOME_TOO_OLD: Outcome
OUTCOME_QUARANTINED: Outcome

class Account(_message.Message):
    __slots__ = ("account_id", "name", "gateway_kind", "gateway_url", "credential_name", "reset_day", "time_zone", "poll_limit", "stop_resume_limit", "poll_interval_s", "enabled", "updated_at")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_KIND_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_URL_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    RESET_DAY_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    POLL_LIMIT_FIELD_NUMBER: _ClassVar[int]
    STOP_RESUME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    POLL_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    name: str
    gateway_kind: str
    gateway_url: str
    credential_name: str
    reset_day: int
    time_zone: str
    poll_limit: int
    stop_resume_limit: int
    poll_interval_s: int
    enabled: bool
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, account_id: _Optional[str] = ..., name: _Optional[str] = ..., gateway_kind: _Optional[str] = ..., gateway_url: _Optional[str] = ..., credential_name: _Optional[str] = ..., reset_day: _Optional[int] = ..., time_zone: _Optional[str] = ..., poll_limit: _Optional[int] = ..., stop_resume_limit: _Optional[int] = ..., poll_interval_s: _Optional[int] = ..., enabled: _Optional[bool] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SaveAccountsRequest(_message.Message):
    __slots__ = ("accounts", "actor")
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[Account]
    actor: str
    def __init__(self, accounts: _Optional[_Iterable[_Union[Account, _Mapping]]] = ..., actor: _Optional[str] = ...) -> None: ...

class SaveAccountsResponse(_message.Message):
    __slots__ = ("accounts",)
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[Account]
    def __init__(self, accounts: _Optional[_Iterable[_Union[Account, _Mapping]]] = ...) -> None: ...

class ListAccountsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAccountsResponse(_message.Message):
    __slots__ = ("accounts", "next_page_token")
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    accounts: _containers.RepeatedCompositeFieldContainer[Account]
    next_page_token: str
    def __init__(self, accounts: _Optional[_Iterable[_Union[Account, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Card(_message.Message):
    __slots__ = ("card_id", "account_id", "msisdn", "lifecycle", "polling_enabled", "network_status", "realname_status", "cycle_start", "cycle_used_bytes", "applied_count", "observed_at", "updated_at")
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    MSISDN_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    POLLING_ENABLED_FIELD_NUMBER: _ClassVar[int]
    NETWORK_STATUS_FIELD_NUMBER: _ClassVar[int]
    REALNAME_STATUS_FIELD_NUMBER: _ClassVar[int]
    CYCLE_START_FIELD_NUMBER: _ClassVar[int]
    CYCLE_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPLIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    card_id: str
    account_id: str
    msisdn: str
    lifecycle: str
    polling_enabled: bool
    network_status: str
    realname_status: str
    cycle_start: str
    cycle_used_bytes: int
    applied_count: int
    observed_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, card_id: _Optional[str] = ..., account_id: _Optional[str] = ..., msisdn: _Optional[str] = ..., lifecycle: _Optional[str] = ..., polling_enabled: _Optional[bool] = ..., network_status: _Optional[str] = ..., realname_status: _Optional[str] = ..., cycle_start: _Optional[str] = ..., cycle_used_bytes: _Optional[int] = ..., applied_count: _Optional[int] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SaveCardsRequest(_message.Message):
    __slots__ = ("cards", "actor")
    CARDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    cards: _containers.RepeatedCompositeFieldContainer[Card]
    actor: str
    def __init__(self, cards: _Optional[_Iterable[_Union[Card, _Mapping]]] = ..., actor: _Optional[str] = ...) -> None: ...

class SaveCardsResponse(_message.Message):
    __slots__ = ("created_count", "updated_count", "refused")
    CREATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    created_count: int
    updated_count: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedCard]
    def __init__(self, created_count: _Optional[int] = ..., updated_count: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedCard, _Mapping]]] = ...) -> None: ...

class RefusedCard(_message.Message):
    __slots__ = ("index", "card_id", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    card_id: str
    message: str
    def __init__(self, index: _Optional[int] = ..., card_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GetCardsRequest(_message.Message):
    __slots__ = ("card_ids",)
    CARD_IDS_FIELD_NUMBER: _ClassVar[int]
    card_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, card_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetCardsResponse(_message.Message):
    __slots__ = ("cards",)
    CARDS_FIELD_NUMBER: _ClassVar[int]
    cards: _containers.RepeatedCompositeFieldContainer[Card]
    def __init__(self, cards: _Optional[_Iterable[_Union[Card, _Mapping]]] = ...) -> None: ...

class ListCardsRequest(_message.Message):
    __slots__ = ("account_id", "page_size", "page_token", "pollable_only")
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POLLABLE_ONLY_FIELD_NUMBER: _ClassVar[int]
    account_id: str
    page_size: int
    page_token: str
    pollable_only: bool
    def __init__(self, account_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., pollable_only: _Optional[bool] = ...) -> None: ...

class ListCardsResponse(_message.Message):
    __slots__ = ("cards", "next_page_token")
    CARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cards: _containers.RepeatedCompositeFieldContainer[Card]
    next_page_token: str
    def __init__(self, cards: _Optional[_Iterable[_Union[Card, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("observation_id", "card_id", "account_id", "observed_at", "traffic", "network", "realname", "raw", "traceparent", "source", "latency_ms")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    REALNAME_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    card_id: str
    account_id: str
    observed_at: _timestamp_pb2.Timestamp
    traffic: TrafficReading
    network: StatusReading
    realname: StatusReading
    raw: str
    traceparent: str
    source: str
    latency_ms: int
    def __init__(self, observation_id: _Optional[str] = ..., card_id: _Optional[str] = ..., account_id: _Optional[str] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., traffic: _Optional[_Union[TrafficReading, _Mapping]] = ..., network: _Optional[_Union[StatusReading, _Mapping]] = ..., realname: _Optional[_Union[StatusReading, _Mapping]] = ..., raw: _Optional[str] = ..., traceparent: _Optional[str] = ..., source: _Optional[str] = ..., latency_ms: _Optional[int] = ...) -> None: ...

class TrafficReading(_message.Message):
    __slots__ = ("total_bytes", "delta_bytes")
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    total_bytes: int
    delta_bytes: int
    def __init__(self, total_bytes: _Optional[int] = ..., delta_bytes: _Optional[int] = ...) -> None: ...

class StatusReading(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class ApplyObservationsRequest(_message.Message):
    __slots__ = ("observations",)
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, observations: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class ApplyObservationsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ApplyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ApplyResult, _Mapping]]] = ...) -> None: ...

class ApplyResult(_message.Message):
    __slots__ = ("observation_id", "outcome", "increment_bytes", "message")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    INCREMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    outcome: Outcome
    increment_bytes: int
    message: str
    def __init__(self, observation_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., increment_bytes: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("observations",)
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[Observation]
    def __init__(self, observations: _Optional[_Iterable[_Union[Observation, _Mapping]]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("accepted_count", "refused")
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted_count: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedObservation]
    def __init__(self, accepted_count: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedObservation, _Mapping]]] = ...) -> None: ...

class RefusedObservation(_message.Message):
    __slots__ = ("index", "observation_id", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    observation_id: str
    message: str
    def __init__(self, index: _Optional[int] = ..., observation_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("observation_id",)
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    def __init__(self, observation_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("observation_id", "observed_at", "card_id", "outcome", "applied_at", "increment_bytes", "collected", "collected_at", "collection_known", "quarantine_reason", "retry_at", "events", "verdict")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    APPLIED_AT_FIELD_NUMBER: _ClassVar[int]
    INCREMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_AT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_KNOWN_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    observed_at: _timestamp_pb2.Timestamp
    card_id: str
    outcome: Outcome
    applied_at: _timestamp_pb2.Timestamp
    increment_bytes: int
    collected: bool
    collected_at: _timestamp_pb2.Timestamp
    collection_known: bool
    quarantine_reason: str
    retry_at: _timestamp_pb2.Timestamp
    events: _containers.RepeatedScalarFieldContainer[str]
    verdict: str
    def __init__(self, observation_id: _Optional[str] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., card_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., applied_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., increment_bytes: _Optional[int] = ..., collected: _Optional[bool] = ..., collected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., collection_known: _Optional[bool] = ..., quarantine_reason: _Optional[str] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., events: _Optional[_Iterable[str]] = ..., verdict: _Optional[str] = ...) -> None: ...

class ListQuarantineRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQuarantineResponse(_message.Message):
    __slots__ = ("items", "next_page_token")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[QuarantinedItem]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[QuarantinedItem, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class QuarantinedItem(_message.Message):
    __slots__ = ("quarantine_id", "observation_id", "card_id", "reason", "sqlstate", "body", "quarantined_at", "replayed_at")
    QUARANTINE_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SQLSTATE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_AT_FIELD_NUMBER: _ClassVar[int]
    quarantine_id: int
    observation_id: str
    card_id: str
    reason: str
    sqlstate: str
    body: str
    quarantined_at: _timestamp_pb2.Timestamp
    replayed_at: _timestamp_pb2.Timestamp
    def __init__(self, quarantine_id: _Optional[int] = ..., observation_id: _Optional[str] = ..., card_id: _Optional[str] = ..., reason: _Optional[str] = ..., sqlstate: _Optional[str] = ..., body: _Optional[str] = ..., quarantined_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReplayRequest(_message.Message):
    __slots__ = ("quarantine_ids", "actor")
    QUARANTINE_IDS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    quarantine_ids: _containers.RepeatedScalarFieldContainer[int]
    actor: str
    def __init__(self, quarantine_ids: _Optional[_Iterable[int]] = ..., actor: _Optional[str] = ...) -> None: ...

class ReplayResponse(_message.Message):
    __slots__ = ("results", "remaining_ids")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_IDS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ApplyResult]
    remaining_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, results: _Optional[_Iterable[_Union[ApplyResult, _Mapping]]] = ..., remaining_ids: _Optional[_Iterable[int]] = ...) -> None: ...
