import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from sluicegate.errors.v1 import bounds_pb2 as _bounds_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("observation_id", "observed_at", "card_id", "account_id", "kind", "outcome", "reading_json", "raw", "error", "latency_ms", "traceparent", "stored_at")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    READING_JSON_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    observed_at: _timestamp_pb2.Timestamp
    card_id: str
    account_id: str
    kind: str
    outcome: str
    reading_json: str
    raw: str
    error: str
    latency_ms: int
    traceparent: str
    stored_at: _timestamp_pb2.Timestamp
    def __init__(self, observation_id: _Optional[str] = ..., observed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., card_id: _Optional[str] = ..., account_id: _Optional[str] = ..., kind: _Optional[str] = ..., outcome: _Optional[str] = ..., reading_json: _Optional[str] = ..., raw: _Optional[str] = ..., error: _Optional[str] = ..., latency_ms: _Optional[int] = ..., traceparent: _Optional[str] = ..., stored_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WriteRecordsRequest(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class WriteRecordsResponse(_message.Message):
    __slots__ = ("stored_count", "duplicate_count", "refused")
    STORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    stored_count: int
    duplicate_count: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedRecord]
    def __init__(self, stored_count: _Optional[int] = ..., duplicate_count: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedRecord, _Mapping]]] = ...) -> None: ...

class RefusedRecord(_message.Message):
    __slots__ = ("observation_id", "message")
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    message: str
    def __init__(self, observation_id: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GetRecordRequest(_message.Message):
    __slots__ = ("observation_id",)
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    observation_id: str
    def __init__(self, observation_id: _Optional[str] = ...) -> None: ...

class GetRecordResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: Record
    def __init__(self, record: _Optional[_Union[Record, _Mapping]] = ...) -> None: ...

class ListRecordsRequest(_message.Message):
    __slots__ = ("card_id", "account_id", "until", "page_size", "page_token")
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    card_id: str
    account_id: str
    until: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, card_id: _Optional[str] = ..., account_id: _Optional[str] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., **kwargs) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("records", "next_page_token")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_page_token: str
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CountRecordsRequest(_message.Message):
    __slots__ = ("until",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    until: _timestamp_pb2.Timestamp
    def __init__(self, until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., **kwargs) -> None: ...

class CountRecordsResponse(_message.Message):
    __slots__ = ("counts",)
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.ScalarMap[str, int]
    def __init__(self, counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

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
    items: _containers.RepeatedCompositeFieldContainer[QuarantinedRecord]
    next_page_token: str
    def __init__(self, items: _Optional[_Iterable[_Union[QuarantinedRecord, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class QuarantinedRecord(_message.Message):
    __slots__ = ("quarantine_id", "observation_id", "card_id", "reason", "sqlstate", "body", "quarantined_at", "replayed_at", "seen_count", "source")
    QUARANTINE_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    CARD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SQLSTATE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_AT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_AT_FIELD_NUMBER: _ClassVar[int]
    SEEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    quarantine_id: int
    observation_id: str
    card_id: str
    reason: str
    sqlstate: str
    body: str
    quarantined_at: _timestamp_pb2.Timestamp
    replayed_at: _timestamp_pb2.Timestamp
    seen_count: int
    source: str
    def __init__(self, quarantine_id: _Optional[int] = ..., observation_id: _Optional[str] = ..., card_id: _Optional[str] = ..., reason: _Optional[str] = ..., sqlstate: _Optional[str] = ..., body: _Optional[str] = ..., quarantined_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replayed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., seen_count: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

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
    results: _containers.RepeatedCompositeFieldContainer[ReplayedRecord]
    remaining_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, results: _Optional[_Iterable[_Union[ReplayedRecord, _Mapping]]] = ..., remaining_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplayedRecord(_message.Message):
    __slots__ = ("quarantine_id", "observation_id", "outcome", "message")
    QUARANTINE_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    quarantine_id: int
    observation_id: str
    outcome: str
    message: str
    def __init__(self, quarantine_id: _Optional[int] = ..., observation_id: _Optional[str] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
