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

class WriteOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WRITE_OUTCOME_UNSPECIFIED: _ClassVar[WriteOutcome]
    WRITE_OUTCOME_OK: _ClassVar[WriteOutcome]
    WRITE_OUTCOME_CLAIM_LOST: _ClassVar[WriteOutcome]
    WRITE_OUTCOME_REFUSED: _ClassVar[WriteOutcome]
WRITE_OUTCOME_UNSPECIFIED: WriteOutcome
WRITE_OUTCOME_OK: WriteOutcome
WRITE_OUTCOME_CLAIM_LOST: WriteOutcome
WRITE_OUTCOME_REFUSED: WriteOutcome

class Claim(_message.Message):
    __slots__ = ("task_id", "owner_token", "epoch")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    owner_token: str
    epoch: int
    def __init__(self, task_id: _Optional[str] = ..., owner_token: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class Capability(_message.Message):
    __slots__ = ("kind", "max_payload_version")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    max_payload_version: int
    def __init__(self, kind: _Optional[str] = ..., max_payload_version: _Optional[int] = ...) -> None: ...

class ClaimTasksRequest(_message.Message):
    __slots__ = ("worker", "channels", "capabilities", "max_tasks", "wait_ms")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    MAX_TASKS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    max_tasks: int
    wait_ms: int
    def __init__(self, worker: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ..., max_tasks: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ClaimTasksResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ClaimedTask]
    def __init__(self, tasks: _Optional[_Iterable[_Union[ClaimedTask, _Mapping]]] = ...) -> None: ...

class ClaimedTask(_message.Message):
    __slots__ = ("claim", "tenant", "channel", "kind", "payload_json", "payload_version", "max_attempts", "remaining_ms", "deadline_at", "traceparent", "slot_fence")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FENCE_FIELD_NUMBER: _ClassVar[int]
    claim: Claim
    tenant: str
    channel: str
    kind: str
    payload_json: str
    payload_version: int
    max_attempts: int
    remaining_ms: int
    deadline_at: _timestamp_pb2.Timestamp
    traceparent: str
    slot_fence: int
    def __init__(self, claim: _Optional[_Union[Claim, _Mapping]] = ..., tenant: _Optional[str] = ..., channel: _Optional[str] = ..., kind: _Optional[str] = ..., payload_json: _Optional[str] = ..., payload_version: _Optional[int] = ..., max_attempts: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., traceparent: _Optional[str] = ..., slot_fence: _Optional[int] = ...) -> None: ...

class RenewClaimsRequest(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    def __init__(self, claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ...) -> None: ...

class WriteResult(_message.Message):
    __slots__ = ("task_id", "outcome", "message")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    outcome: WriteOutcome
    message: str
    def __init__(self, task_id: _Optional[str] = ..., outcome: _Optional[_Union[WriteOutcome, str]] = ..., message: _Optional[str] = ...) -> None: ...

class RenewClaimsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RenewClaimResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RenewClaimResult, _Mapping]]] = ...) -> None: ...

class RenewClaimResult(_message.Message):
    __slots__ = ("task_id", "outcome", "remaining_ms", "cancel_requested")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    outcome: WriteOutcome
    remaining_ms: int
    cancel_requested: bool
    def __init__(self, task_id: _Optional[str] = ..., outcome: _Optional[_Union[WriteOutcome, str]] = ..., remaining_ms: _Optional[int] = ..., cancel_requested: _Optional[bool] = ...) -> None: ...

class AppendTextRequest(_message.Message):
    __slots__ = ("pieces",)
    PIECES_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[TextPiece]
    def __init__(self, pieces: _Optional[_Iterable[_Union[TextPiece, _Mapping]]] = ...) -> None: ...

class TextPiece(_message.Message):
    __slots__ = ("claim", "seq", "text")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    claim: Claim
    seq: int
    text: str
    def __init__(self, claim: _Optional[_Union[Claim, _Mapping]] = ..., seq: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class AppendTextResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[WriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[WriteResult, _Mapping]]] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("reports",)
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, reports: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("claim", "percent", "message", "seq")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    claim: Claim
    percent: int
    message: str
    seq: int
    def __init__(self, claim: _Optional[_Union[Claim, _Mapping]] = ..., percent: _Optional[int] = ..., message: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[WriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[WriteResult, _Mapping]]] = ...) -> None: ...

class CompleteTasksRequest(_message.Message):
    __slots__ = ("completions",)
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    completions: _containers.RepeatedCompositeFieldContainer[Completion]
    def __init__(self, completions: _Optional[_Iterable[_Union[Completion, _Mapping]]] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("claim", "result_json", "export")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    claim: Claim
    result_json: str
    export: ExportPointer
    def __init__(self, claim: _Optional[_Union[Claim, _Mapping]] = ..., result_json: _Optional[str] = ..., export: _Optional[_Union[ExportPointer, _Mapping]] = ...) -> None: ...

class ExportPointer(_message.Message):
    __slots__ = ("export_id", "object_key", "row_count", "size_bytes", "sha256")
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_KEY_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    export_id: str
    object_key: str
    row_count: int
    size_bytes: int
    sha256: str
    def __init__(self, export_id: _Optional[str] = ..., object_key: _Optional[str] = ..., row_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class CompleteTasksResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[WriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[WriteResult, _Mapping]]] = ...) -> None: ...

class FailTasksRequest(_message.Message):
    __slots__ = ("failures",)
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    def __init__(self, failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("claim", "error_class", "error", "retry_after_ms")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    claim: Claim
    error_class: str
    error: str
    retry_after_ms: int
    def __init__(self, claim: _Optional[_Union[Claim, _Mapping]] = ..., error_class: _Optional[str] = ..., error: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class FailTasksResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[WriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[WriteResult, _Mapping]]] = ...) -> None: ...

class ReleaseClaimsRequest(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    def __init__(self, claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ...) -> None: ...

class ReleaseClaimsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[WriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[WriteResult, _Mapping]]] = ...) -> None: ...
