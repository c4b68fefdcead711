"""Field bounds: declared once in the protos, compiled once per message type, checked before anything else."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from servicekit.errors import Reason, ServiceError
from sluicegate.errors.v1 import bounds_pb2

_MOST_VIOLATIONS = 20
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
_TIMESTAMP_SECONDS = (-62_135_596_800, 253_402_300_799)
_DURATION_SECONDS = 315_576_000_000
_NANOS = 999_999_999

Violations = dict[str, str]
Checker = Callable[[Any, str, Violations], None]
"""Checks one value; notes each problem under the field's path."""

_checkers: dict[str, Checker | None] = {}
_Text = FieldDescriptor.CPPTYPE_STRING
_Nested = FieldDescriptor.CPPTYPE_MESSAGE


def check(message: Message) -> None:
    """Refuse a message with a field out of its declared bounds.

    Raises:
        ServiceError: INVALID_FIELD; the metadata maps each field's path (``items[2].token``) to its problem.
    """
    checker = _checker(message.DESCRIPTOR)
    if checker is None:
        return
    violations: Violations = {}
    checker(message, "", violations)
    if violations:
        raise _refusal(violations)


def _refusal(violations: Violations) -> ServiceError:
    first = list(violations.items())[:_MOST_VIOLATIONS]
    message = "; ".join(f"{path}: {problem}" for path, problem in first[:3])
    return ServiceError(Reason.INVALID_FIELD, message, metadata=dict(first))


def _checker(descriptor: Any) -> Checker | None:
    name = descriptor.full_name
    if name not in _checkers:
        if _has_bounds(descriptor, set()):
            _checkers[name] = _late(name)  # stands in while a type that contains itself is compiled
            _checkers[name] = _compile(descriptor)
        else:
            _checkers[name] = None
    return _checkers[name]


def _late(name: str) -> Checker:
    def check_late(value: Any, path: str, violations: Violations) -> None:
        checker = _checkers[name]
        if checker is not None:
            checker(value, path, violations)

    return check_late


def _has_bounds(descriptor: Any, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    if descriptor.full_name in {_TIMESTAMP, _DURATION}:
        return True
    seen.add(descriptor.full_name)
    return any(
        _bounds_of(field) is not None or (field.cpp_type == _Nested and _has_bounds(field.message_type, seen))
        for field in descriptor.fields
    )


def _bounds_of(field: FieldDescriptor) -> bounds_pb2.FieldBounds | None:
    options: Any = field.GetOptions()
    return options.Extensions[bounds_pb2.bounds] if options.HasExtension(bounds_pb2.bounds) else None


def _compile(descriptor: Any) -> Checker:
    if descriptor.full_name == _TIMESTAMP:
        return _check_timestamp
    if descriptor.full_name == _DURATION:
        return _check_duration
    checkers = tuple(checker for field in descriptor.fields if (checker := _field_checker(field)))

    def check_message(message: Any, path: str, violations: Violations) -> None:
        prefix = path + "." if path else ""
        for checker in checkers:
            checker(message, prefix, violations)

    return check_message


def _field_checker(field: FieldDescriptor) -> Checker | None:
    bounds = _bounds_of(field)
    if field.is_repeated:
        return _repeated_checker(field, bounds)
    value_checker = _value_checker(field, bounds)
    required = bounds is not None and bounds.required
    if not required and value_checker is None:
        return None
    name = field.name
    if field.has_presence:
        return _with_presence(name, required=required, text=field.cpp_type == _Text, inner=value_checker)
    return _without_presence(name, required=required and _zero_means_absent(field), inner=value_checker)


def _zero_means_absent(field: FieldDescriptor) -> bool:
    return field.cpp_type in {_Text, FieldDescriptor.CPPTYPE_ENUM}


def _with_presence(name: str, *, required: bool, text: bool, inner: Checker | None) -> Checker:
    def check_field(message: Any, prefix: str, violations: Violations) -> None:
        if not message.HasField(name):
            if required:
                violations[prefix + name] = "is required"
            return
        value = getattr(message, name)
        if required and text and not value:
            violations[prefix + name] = "is required"
        elif inner is not None:
            inner(value, prefix + name, violations)

    return check_field


def _without_presence(name: str, *, required: bool, inner: Checker | None) -> Checker:
    def check_field(message: Any, prefix: str, violations: Violations) -> None:
        value = getattr(message, name)
        if required and not value:
            violations[prefix + name] = "is required"
        elif inner is not None:
            inner(value, prefix + name, violations)

    return check_field


def _repeated_checker(field: FieldDescriptor, bounds: bounds_pb2.FieldBounds | None) -> Checker | None:
    name = field.name
    required = bounds is not None and bounds.required
    most = bounds.max_items if bounds is not None else 0
    item_checker = _map_checker(field, bounds) if _is_map(field) else _list_checker(field, bounds)
    if not required and not most and item_checker is None:
        return None

    def check_field(message: Any, prefix: str, violations: Violations) -> None:
        values = getattr(message, name)
        if not values:
            if required:
                violations[prefix + name] = "is required"
        elif most and len(values) > most:
            violations[prefix + name] = f"has {len(values)} items; at most {most} are allowed"
        elif item_checker is not None:
            item_checker(values, prefix + name, violations)

    return check_field


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _list_checker(field: FieldDescriptor, bounds: bounds_pb2.FieldBounds | None) -> Checker | None:
    inner = _value_checker(field, bounds)
    if inner is None:
        return None

    def check_items(values: Any, path: str, violations: Violations) -> None:
        for index, value in enumerate(values):
            inner(value, f"{path}[{index}]", violations)

    return check_items


def _map_checker(field: Any, bounds: bounds_pb2.FieldBounds | None) -> Checker | None:
    key_checker = _value_checker(field.message_type.fields_by_name["key"], bounds)
    value_checker = _value_checker(field.message_type.fields_by_name["value"], bounds)
    if key_checker is None and value_checker is None:
        return None

    def check_entries(values: Mapping[Any, Any], path: str, violations: Violations) -> None:
        for key in values:
            place = f"{path}[{key}]"
            if key_checker is not None:
                key_checker(key, place, violations)
            if value_checker is not None:
                value_checker(values[key], place, violations)

    return check_entries


def _value_checker(field: FieldDescriptor, bounds: bounds_pb2.FieldBounds | None) -> Checker | None:
    if field.cpp_type == _Nested:
        return _checker(field.message_type)
    if bounds is None:
        return None
    if field.cpp_type == _Text:
        return _text_checker(
            bounds, unit="bytes" if field.type == FieldDescriptor.TYPE_BYTES else "characters"
        )
    return _number_checker(bounds)


def _text_checker(bounds: bounds_pb2.FieldBounds, *, unit: str) -> Checker | None:
    least, most = bounds.min_length, bounds.max_length
    pattern = re.compile(bounds.pattern) if bounds.pattern and unit == "characters" else None
    if not least and not most and pattern is None:
        return None

    def check_text(value: Any, path: str, violations: Violations) -> None:
        length = len(value)
        if not length:
            return
        if length < least:
            violations[path] = f"has {length} {unit}; at least {least} are needed"
        elif most and length > most:
            violations[path] = f"has {length} {unit}; at most {most} are allowed"
        elif pattern is not None and pattern.fullmatch(value) is None:
            violations[path] = f"does not match {pattern.pattern}"

    return check_text


def _number_checker(bounds: bounds_pb2.FieldBounds) -> Checker | None:
    least = bounds.min if bounds.HasField("min") else None
    most = bounds.max if bounds.HasField("max") else None
    if least is None and most is None:
        return None

    def check_number(value: Any, path: str, violations: Violations) -> None:
        # Written so that NaN, which compares as false with everything, is refused.
        if least is not None and not value >= least:
            violations[path] = f"is {value}; at least {least} is needed"
        elif most is not None and not value <= most:
            violations[path] = f"is {value}; at most {most} is allowed"

    return check_number


def _check_timestamp(value: Any, path: str, violations: Violations) -> None:
    earliest, latest = _TIMESTAMP_SECONDS
    if not earliest <= value.seconds <= latest or not 0 <= value.nanos <= _NANOS:
        violations[path] = "is not an instant from the year 1 to the year 9999"


def _check_duration(value: Any, path: str, violations: Violations) -> None:
    if abs(value.seconds) > _DURATION_SECONDS or abs(value.nanos) > _NANOS or value.seconds * value.nanos < 0:
        violations[path] = "is not a valid duration"
