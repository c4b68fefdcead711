from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
BOUNDS_FIELD_NUMBER: _ClassVar[int]
bounds: _descriptor.FieldDescriptor

class FieldBounds(_message.Message):
    __slots__ = ("required", "min_length", "max_length", "min", "max", "max_items", "pattern")
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    MIN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    required: bool
    min_length: int
    max_length: int
    min: int
    max: int
    max_items: int
    pattern: str
    def __init__(self, required: _Optional[bool] = ..., min_length: _Optional[int] = ..., max_length: _Optional[int] = ..., min: _Optional[int] = ..., max: _Optional[int] = ..., max_items: _Optional[int] = ..., pattern: _Optional[str] = ...) -> None: ...
