"""Protobuf: files of a registry, messages of a frame, and each kind of field as value and as column."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra moldau[schemas]")
pytest.importorskip("pyarrow", reason="the extra moldau[arrow] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2, text_format, timestamp_pb2  # type: ignore[import-untyped,unused-ignore]

from moldau.tables.values.converters import converter_to
from moldau.tables.values.protobuf import JsonValue, protobuf_decoder
from moldau.tables.values.protobuf_types import protobuf_type
from moldau.tables.values.registry import Reference, Schema, ValueNotDecoded


def file(text: str, **named: str) -> bytes:
    """A FileDescriptorProto as text; `label: LABEL_OPTIONAL` is added if a field has none."""
    found = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    left = [*found.message_type]
    for each in found.extension:
        each.label = each.label or 1
    while left:
        message = left.pop()
        left += message.nested_type
        for field in message.field:
            field.label = field.label if field.HasField("label") else 1
    return bytes(found.SerializeToString())


def stored(schema: Schema, payload: bytes, path: bytes = b"\0") -> tuple[Any, pa.DataType]:
    """A value as it is in its column, and the type of the column."""
    value = protobuf_decoder(schema)(memoryview(path + payload))
    kind, needs_conversion = protobuf_type(schema, (0,))
    return pa.array([converter_to(kind)(value) if needs_conversion else value], kind).to_pylist()[0], kind


def schema_of(text: str, **references: str) -> Schema:
    named = tuple(Reference(name.replace("__", "/") + ".proto", file(each)) for name, each in references.items())
    return Schema("PROTOBUF", file(text), named)


def test_well_known_files_are_those_of_the_library() -> None:
    schema = schema_of(
        """
        name: "default" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
        dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/empty.proto"
        message_type { name: "M"
            field { name: "at" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
            field { name: "n" number: 2 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" }
            field { name: "e" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Empty" } }
        """
    )
    at = timestamp_pb2.Timestamp(seconds=5, nanos=6).SerializeToString()
    value, kind = stored(schema, b"\x0a" + bytes([len(at)]) + at + b"\x1a\0")
    assert value == {"at": {"seconds": 5, "nanos": 6}, "n": None, "e": True}
    assert kind == pa.struct(
        [
            ("at", pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])),
            ("n", pa.struct([("value", pa.int64())])),
            ("e", pa.bool_()),
        ]
    )


def test_values_of_google_protobuf_struct_are_json() -> None:
    from google.protobuf.struct_pb2 import Struct  # type: ignore[import-untyped,unused-ignore]

    schema = schema_of(
        """
        name: "s" syntax: "proto3" dependency: "google/protobuf/struct.proto"
        message_type { name: "M" field { name: "s" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" } }
        """
    )
    held = Struct()
    held.update({"a": [1, "x", None]})
    payload = b"\x0a" + bytes([held.ByteSize()]) + held.SerializeToString()
    assert stored(schema, payload) == ({"s": '{"a": [1.0, "x", null]}'}, pa.struct([("s", pa.string())]))
    assert protobuf_decoder(schema)(memoryview(b"\0" + payload)) == {"s": JsonValue({"a": [1.0, "x", None]})}


def test_a_file_that_is_referred_to_has_the_name_of_the_reference() -> None:
    """A registry gives each file a name of its own, and fields as their writer has named the types: without a package,
    and without saying whether it is a message or an enum.
    """
    schema = schema_of(
        """
        name: "default" package: "p" syntax: "proto3" dependency: "common/town.proto" dependency: "confluent/meta.proto"
        message_type { name: "M"
            field { name: "town" number: 1 type_name: "Town" } field { name: "size" number: 2 type_name: "Size" } }
        """,
        sub__size="""
            name: "default" package: "p" syntax: "proto3"
            enum_type { name: "Size" value { name: "S" number: 0 } value { name: "L" number: 1 } }
        """,
        common__town="""
            name: "default" package: "p" syntax: "proto3" dependency: "sub/size.proto" public_dependency: 0
            message_type { name: "Town" field { name: "name" number: 1 type: TYPE_STRING } }
        """,
    )
    assert stored(schema, b"\x0a\x03\x0a\x01B\x10\x01") == (
        {"town": {"name": "B"}, "size": "L"},
        pa.struct([("town", pa.struct([("name", pa.string())])), ("size", pa.string())]),
    )


def test_a_file_that_nothing_has_is_named_where_a_field_needs_it() -> None:
    schema = schema_of(
        'name: "a" dependency: "gone.proto" message_type { name: "M" field { name: "x" number: 1 type_name: ".Gone" } }'
    )
    with pytest.raises(TypeError, match="Gone"):
        protobuf_decoder(schema)


def test_decimals_of_confluent() -> None:
    schema = schema_of(
        'name: "a" dependency: "confluent/type/decimal.proto" '
        'message_type { name: "M" field { name: "x" number: 1 type_name: ".confluent.type.Decimal" } }'
    )
    assert stored(schema, b"\x0a\x07\x0a\x01\x7f\x10\x03\x18\x02")[0] == {
        "x": {"value": b"\x7f", "precision": 3, "scale": 2}
    }


PROTO2 = """
    name: "two" package: "p" syntax: "proto2"
    enum_type { name: "E"
        value { name: "NONE" number: 0 } value { name: "ONE" number: 1 } value { name: "TWO" number: 2 } }
    message_type { name: "M"
        extension_range { start: 100 end: 200 }
        field { name: "one" number: 1 type: TYPE_ENUM type_name: ".p.E" default_value: "TWO" }
        field { name: "many" number: 2 label: LABEL_REPEATED type: TYPE_ENUM type_name: ".p.E" }
        field { name: "mygroup" number: 3 type: TYPE_GROUP type_name: ".p.M.MyGroup" }
        field { name: "by" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".p.M.ByEntry" }
        field { name: "left" number: 5 type: TYPE_INT32 oneof_index: 0 }
        field { name: "right" number: 6 type: TYPE_STRING oneof_index: 0 }
        oneof_decl { name: "choice" }
        nested_type { name: "MyGroup" field { name: "x" number: 1 type: TYPE_SINT32 } }
        nested_type { name: "ByEntry" options { map_entry: true }
            field { name: "key" number: 1 type: TYPE_STRING }
            field { name: "value" number: 2 type: TYPE_ENUM type_name: ".p.E" } }
        nested_type { name: "Inner" field { name: "deep" number: 1 type: TYPE_BOOL } } }
    extension { name: "more" number: 100 extendee: ".p.M" type: TYPE_STRING label: LABEL_OPTIONAL }
    extension { name: "flags" number: 101 extendee: ".p.M" type: TYPE_ENUM type_name: ".p.E" label: LABEL_REPEATED }
"""
ABSENT: dict[str, object] = {
    "one": None,
    "many": [],
    "mygroup": None,
    "by": [],
    "left": None,
    "right": None,
    "[p.more]": None,
    "[p.flags]": [],
}


def test_fields_of_proto2() -> None:
    value, kind = stored(Schema("PROTOBUF", file(PROTO2)), b"")
    assert value == ABSENT
    assert kind == pa.struct(
        [
            ("one", pa.string()),
            ("many", pa.list_(pa.field("element", pa.string()))),
            ("mygroup", pa.struct([("x", pa.int32())])),
            ("by", pa.map_(pa.string(), pa.string())),
            ("left", pa.int32()),
            ("right", pa.string()),
            ("[p.more]", pa.string()),
            ("[p.flags]", pa.list_(pa.field("element", pa.string()))),
        ]
    )


@pytest.mark.parametrize(
    ("payload", "changed"),
    [
        (b"\x08\x01", {"one": "ONE"}),
        (b"\x08\x09", {"one": "9"}),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", {"one": "-1"}),
        (b"\x10\x02\x10\x09\x10\x01", {"many": ["TWO", "9", "ONE"]}),
        (b"\x1b\x08\x03\x1c", {"mygroup": {"x": -2}}),
        (b"\x22\x05\x0a\x01k\x10\x09", {"by": [("k", "9")]}),
        (b"\x28\x00", {"left": 0}),
        (b"\x32\x00", {"right": ""}),
        (b"\xa2\x06\x01x", {"[p.more]": "x"}),
        (b"\xa8\x06\x01\xa8\x06\x07", {"[p.flags]": ["ONE", "7"]}),
    ],
    ids=[
        "enum",
        "no name",
        "negative",
        "a list of enums",
        "group",
        "a map of enums",
        "oneof",
        "oneof, empty",
        "extension",
        "extensions",
    ],
)
def test_a_field_of_proto2(payload: bytes, changed: dict[str, object]) -> None:
    assert stored(Schema("PROTOBUF", file(PROTO2)), payload)[0] == ABSENT | changed


@pytest.mark.parametrize("edition", ["EDITION_2023", "EDITION_2024"])
def test_fields_of_an_edition(edition: str) -> None:
    """A field has presence unless its features say otherwise, a message may be delimited, and an enum closed."""
    schema = schema_of(
        f"""
        name: "default" syntax: "editions" edition: {edition} package: "p"
        enum_type {{ name: "E" options {{ features {{ enum_type: CLOSED }} }} value {{ name: "A" number: 1 }} }}
        message_type {{ name: "N" field {{ name: "x" number: 1 type: TYPE_INT32 }} }}
        message_type {{ name: "M"
            field {{ name: "d" number: 1 type: TYPE_MESSAGE type_name: ".p.N"
                options {{ features {{ message_encoding: DELIMITED }} }} }}
            field {{ name: "e" number: 2 type: TYPE_ENUM type_name: ".p.E" label: LABEL_REPEATED }}
            field {{ name: "i" number: 3 type: TYPE_INT32 options {{ features {{ field_presence: IMPLICIT }} }} }}
            field {{ name: "r" number: 4 type: TYPE_INT32
                options {{ features {{ field_presence: LEGACY_REQUIRED }} }} }}
            field {{ name: "n" number: 5 type: TYPE_INT32 }} }}
        """
    )
    of_m = b"\x02\x02"  # The path of the second message.
    delimited, packed, required = b"\x0b\x08\x05\x0c", b"\x12\x02\x01\x07", b"\x20\x09"
    value = protobuf_decoder(schema)(memoryview(of_m + delimited + packed + required))
    assert value == {"d": {"x": 5}, "e": ["A", "7"], "i": 0, "r": 9, "n": None}
    kind = protobuf_type(schema, (1,)).type
    assert kind.field("d").type == pa.struct([("x", pa.int32())]) and kind.field("e").type.value_type == pa.string()


def test_the_path_of_a_frame_leads_to_a_message_inside_and_to_no_entry_of_a_map() -> None:
    decode = protobuf_decoder(Schema("PROTOBUF", file(PROTO2)))
    assert decode(memoryview(b"\4\0\4" + b"\x08\x01")) == {"deep": True}
    for path in (b"\4\0\2", b"\4\0\6", b"\2\2"):
        with pytest.raises(ValueNotDecoded, match="has no message at"):
            decode(memoryview(path))


def test_a_schema_without_messages_and_bytes_that_are_none() -> None:
    for text in (b"", b"\xff\xff", base64.b64decode("AAAA")):
        with pytest.raises(ValueNotDecoded):
            protobuf_decoder(Schema("PROTOBUF", text))


def test_messages_of_an_extension_count_among_the_values_that_a_payload_claims() -> None:
    """Two bytes for a message of a thousand fields."""
    found = text_format.Parse(
        'name: "m" syntax: "proto2" message_type { name: "M" extension_range { start: 100 end: 200 } } '
        'message_type { name: "Wide" } extension '
        '{ name: "w" number: 100 extendee: ".M" label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".Wide" }',
        descriptor_pb2.FileDescriptorProto(),
    )
    for each in range(1, 1_001):
        found.message_type[1].field.add(name=f"f{each}", number=each, type=5, label=1)
    decode = protobuf_decoder(Schema("PROTOBUF", found.SerializeToString()))
    assert len(decode(memoryview(b"\0" + b"\xa2\x06\0" * 3))["[w]"]) == 3  # type: ignore[index]
    with pytest.raises(ValueNotDecoded, match="claims more than"):
        decode(memoryview(b"\0" + b"\xa2\x06\0" * 1_000))
