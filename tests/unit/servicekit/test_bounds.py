import math

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import Message

from servicekit import bounds
from servicekit.errors import Reason, ServiceError
from sluicegate.errors.v1 import bounds_pb2

F = descriptor_pb2.FieldDescriptorProto
Bounds = bounds_pb2.FieldBounds


def _build() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="test/bounds.proto",
        package="test.bounds",
        syntax="proto3",
        dependency=[
            "sluicegate/errors/v1/bounds.proto",
            "google/protobuf/timestamp.proto",
            "google/protobuf/duration.proto",
        ],
    )
    entry = descriptor_pb2.DescriptorProto(name="LabelsEntry")
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    node.nested_type.append(entry)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="KIND_UNSPECIFIED", number=0)
    kind.value.add(name="KIND_A", number=1)

    def field(
        name: str,
        field_type: "F.Type",
        limits: Bounds | None = None,
        *,
        repeated: bool = False,
        optional: bool = False,
        type_name: str | None = None,
    ) -> None:
        made = node.field.add(
            name=name,
            number=len(node.field) + 1,
            type=field_type,
            label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL,
            type_name=type_name,
        )
        if optional:
            node.oneof_decl.add(name="_" + name)
            made.oneof_index = len(node.oneof_decl) - 1
            made.proto3_optional = True
        if limits is not None:
            made.options.Extensions[bounds_pb2.bounds].CopyFrom(limits)

    field("name", F.TYPE_STRING, Bounds(required=True, max_length=5, pattern="[a-z]+"))
    field("note", F.TYPE_STRING, Bounds(min_length=2, max_length=4))
    field("blob", F.TYPE_BYTES, Bounds(max_length=3))
    field("weight", F.TYPE_INT32, Bounds(min=1, max=9))
    field("ratio", F.TYPE_DOUBLE, Bounds(min=0, max=1))
    field("limit", F.TYPE_INT64, Bounds(min=1), optional=True)
    field("alias", F.TYPE_STRING, Bounds(required=True), optional=True)
    field("kind", F.TYPE_ENUM, Bounds(required=True), type_name=".test.bounds.Kind")
    field("tags", F.TYPE_STRING, Bounds(max_items=2, max_length=3), repeated=True)
    field("child", F.TYPE_MESSAGE, type_name=".test.bounds.Node")
    field("children", F.TYPE_MESSAGE, Bounds(max_items=2), repeated=True, type_name=".test.bounds.Node")
    field(
        "labels",
        F.TYPE_MESSAGE,
        Bounds(max_items=1, max_length=3),
        repeated=True,
        type_name=".test.bounds.Node.LabelsEntry",
    )
    field("at", F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    field("span", F.TYPE_MESSAGE, type_name=".google.protobuf.Duration")
    pool = descriptor_pool.Default()
    pool.Add(file)  # type: ignore[no-untyped-call]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.bounds.Node"))


Node = _build()


def valid(**changes: object) -> Message:
    return Node(**({"name": "abc", "weight": 1, "alias": "x", "kind": 1} | changes))


def violations(message: Message) -> dict[str, str]:
    try:
        bounds.check(message)
    except ServiceError as error:
        return error.metadata if error.reason is Reason.INVALID_FIELD else {"": error.reason}
    return {}


def test_a_message_within_its_bounds_passes() -> None:
    assert (
        violations(valid(note="ab", tags=["abc"], child=valid(), labels={"a": "b"}, ratio=0.5, limit=1)) == {}
    )


def test_what_is_required_must_be_there() -> None:
    assert violations(Node(weight=1)) == {
        "name": "is required",
        "alias": "is required",
        "kind": "is required",
    }
    assert violations(valid(alias="")) == {"alias": "is required"}


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"name": "abcdef"}, "name", "has 6 characters; at most 5 are allowed"),
        ({"name": "ABC"}, "name", "does not match [a-z]+"),
        ({"name": "abc\n"}, "name", "does not match [a-z]+"),
        ({"note": "a"}, "note", "has 1 characters; at least 2 are needed"),
        ({"blob": b"abcd"}, "blob", "has 4 bytes; at most 3 are allowed"),
        ({"weight": 0}, "weight", "is 0; at least 1 is needed"),
        ({"weight": 10}, "weight", "is 10; at most 9 is allowed"),
        ({"ratio": math.nan}, "ratio", "is nan; at least 0 is needed"),
        ({"ratio": math.inf}, "ratio", "is inf; at most 1 is allowed"),
        ({"limit": 0}, "limit", "is 0; at least 1 is needed"),
        ({"tags": ["a", "b", "c"]}, "tags", "has 3 items; at most 2 are allowed"),
        ({"tags": ["a", "abcd"]}, "tags[1]", "has 4 characters; at most 3 are allowed"),
        ({"labels": {"a": "b", "c": "d"}}, "labels", "has 2 items; at most 1 are allowed"),
        ({"labels": {"a": "bcde"}}, "labels[a]", "has 4 characters; at most 3 are allowed"),
        ({"child": Node(weight=1, name="x", kind=1)}, "child.alias", "is required"),
        (
            {"children": [valid(), valid(child=valid(weight=0))]},
            "children[1].child.weight",
            "is 0; at least 1 is needed",
        ),
        (
            {"at": timestamp_pb2.Timestamp(seconds=10**12)},
            "at",
            "is not an instant from the year 1 to the year 9999",
        ),
        (
            {"at": timestamp_pb2.Timestamp(nanos=-1)},
            "at",
            "is not an instant from the year 1 to the year 9999",
        ),
        ({"span": duration_pb2.Duration(seconds=1, nanos=-1)}, "span", "is not a valid duration"),
    ],
)
def test_what_is_out_of_bounds_is_named(changes: dict[str, object], field: str, problem: str) -> None:
    assert violations(valid(**changes)) == {field: problem}


def test_an_empty_optional_text_passes_its_least_length() -> None:
    assert violations(valid(note="")) == {}


def test_the_list_of_violations_is_bounded() -> None:
    child = valid(tags=["abcd", "abcd"], weight=0, ratio=9, name="", alias="", kind=0, blob=b"1234", note="1")
    nested = valid(child=child, children=[child, child], weight=0, ratio=9, name="", note="1")
    assert len(violations(nested)) == 20


def test_a_message_type_without_bounds_costs_nothing() -> None:
    assert bounds._checker(bounds_pb2.FieldBounds.DESCRIPTOR) is None
