from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_INVALID_FIELD: _ClassVar[Reason]
    REASON_SLOT_UNAVAILABLE: _ClassVar[Reason]
    REASON_BACKLOG_FULL: _ClassVar[Reason]
    REASON_RATE_LIMITED: _ClassVar[Reason]
    REASON_SLOT_LOST: _ClassVar[Reason]
    REASON_CLAIM_LOST: _ClassVar[Reason]
    REASON_NOT_FOUND: _ClassVar[Reason]
    REASON_NOT_SIGNED_IN: _ClassVar[Reason]
    REASON_NOT_ALLOWED: _ClassVar[Reason]
    REASON_DEPENDENCY_AWAY: _ClassVar[Reason]
    REASON_TIME_IS_UP: _ClassVar[Reason]
    REASON_INTERNAL: _ClassVar[Reason]
    REASON_KEY_REUSED: _ClassVar[Reason]
    REASON_WRONG_STATE: _ClassVar[Reason]
    REASON_PAUSED: _ClassVar[Reason]
    REASON_STALE_VERSION: _ClassVar[Reason]
    REASON_CANCELLED: _ClassVar[Reason]
    REASON_QUOTA_EXHAUSTED: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
REASON_INVALID_FIELD: Reason
REASON_SLOT_UNAVAILABLE: Reason
REASON_BACKLOG_FULL: Reason
REASON_RATE_LIMITED: Reason
REASON_SLOT_LOST: Reason
REASON_CLAIM_LOST: Reason
REASON_NOT_FOUND: Reason
REASON_NOT_SIGNED_IN: Reason
REASON_NOT_ALLOWED: Reason
REASON_DEPENDENCY_AWAY: Reason
REASON_TIME_IS_UP: Reason
REASON_INTERNAL: Reason
REASON_KEY_REUSED: Reason
REASON_WRONG_STATE: Reason
REASON_PAUSED: Reason
REASON_STALE_VERSION: Reason
REASON_CANCELLED: Reason
REASON_QUOTA_EXHAUSTED: Reason
