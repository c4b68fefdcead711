"""The gRPC form of `servicekit.errors`: a status code and google.rpc details, there and back."""

import binascii
from collections.abc import Iterable, Mapping
from datetime import timedelta

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from servicekit.errors import Reason, ServiceError

DOMAIN = "sluicegate"
DETAILS_KEY = "grpc-status-details-bin"

_CODES: Mapping[Reason, grpc.StatusCode] = {
    Reason.INVALID_FIELD: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.SLOT_UNAVAILABLE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.BACKLOG_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.PAUSED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.SLOT_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.CLAIM_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.KEY_REUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.WRONG_STATE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STALE_VERSION: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.NOT_SIGNED_IN: grpc.StatusCode.UNAUTHENTICATED,
    Reason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.DEPENDENCY_AWAY: grpc.StatusCode.UNAVAILABLE,
    Reason.TIME_IS_UP: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.QUOTA_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_REASONS_WITHOUT_DETAILS: Mapping[grpc.StatusCode, Reason] = {
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_FIELD,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.RATE_LIMITED,
    grpc.StatusCode.FAILED_PRECONDITION: Reason.WRONG_STATE,
    grpc.StatusCode.NOT_FOUND: Reason.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED: Reason.NOT_SIGNED_IN,
    grpc.StatusCode.PERMISSION_DENIED: Reason.NOT_ALLOWED,
    grpc.StatusCode.UNAVAILABLE: Reason.DEPENDENCY_AWAY,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.TIME_IS_UP,
    grpc.StatusCode.CANCELLED: Reason.CANCELLED,
}


def code_of(reason: Reason) -> grpc.StatusCode:
    """Return the gRPC code that stands for a reason."""
    return _CODES[reason]


def details_of(error: ServiceError) -> bytes:
    """Return the serialized google.rpc.Status with ErrorInfo, and RetryInfo and BadRequest where they apply."""
    status = status_pb2.Status(code=_CODES[error.reason].value[0], message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN, metadata=error.metadata)
    status.details.add().Pack(info)
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromTimedelta(error.retry_after)
        status.details.add().Pack(retry)
    if error.reason is Reason.INVALID_FIELD and error.metadata:
        request = error_details_pb2.BadRequest()
        for field, problem in error.metadata.items():
            request.field_violations.add(field=field, description=problem)
        status.details.add().Pack(request)
    serialized: bytes = status.SerializeToString()
    return serialized


def rebuild(
    code: grpc.StatusCode, message: str, trailing: Iterable[tuple[str, str | bytes]], *, peer: str
) -> ServiceError:
    """Return the ServiceError that a server raised, from what arrived of it.

    Args:
        code: the call's status code.
        message: the call's status text; not shown when there are no details, because it is not written for people.
        trailing: the call's trailing metadata.
        peer: who was called, for the message when the server itself said nothing.
    """
    for key, value in trailing:
        if key == DETAILS_KEY and isinstance(value, bytes) and (error := _from_details(value)) is not None:
            return error
    return ServiceError(
        _REASONS_WITHOUT_DETAILS.get(code, Reason.INTERNAL), _plain_message(code, message, peer)
    )


def _from_details(serialized: bytes) -> ServiceError | None:
    try:
        status = status_pb2.Status.FromString(serialized)
    except (DecodeError, binascii.Error):
        return None
    reason: Reason | None = None
    metadata: dict[str, str] = {}
    retry_after: timedelta | None = None
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason = Reason(info.reason) if info.reason in Reason.__members__ else Reason.INTERNAL
            metadata = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.ToTimedelta()
    if reason is None:
        return None
    return ServiceError(reason, status.message, retry_after=retry_after, metadata=metadata)


def _plain_message(code: grpc.StatusCode, message: str, peer: str) -> str:
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return f"{peer} can't be reached"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"{peer} did not answer in time"
        case grpc.StatusCode.CANCELLED:
            return f"the call to {peer} was cancelled"
        case _:
            return f"{peer} answered {code.name}: {message}"
