"""A value is refused before a library decodes it if it is nested too deeply or claims too many values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tables.values.avro import avro_decoder
from moldau.tables.values.bounds import (
    DECIMAL_SIZE_MAX,
    DEPTH_MAX,
    VALUES_MAX,
    HostileValue,
    has_many_brackets,
    json_depth,
    parse_json,
)
from moldau.tables.values.protobuf import protobuf_decoder
from moldau.tables.values.registry import Schema, ValueNotDecoded

CHAIN = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}
NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "E", "fields": [{"name": "a", "type": "null"}]}}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9000, "scale": 0}
DECIMALS = {"type": "map", "values": ["null", DECIMAL]}


def avro(schema: object) -> Callable[[bytes], Any]:
    pytest.importorskip("fastavro")
    decode = avro_decoder(Schema("AVRO", json.dumps(schema).encode()))
    return lambda data: decode(memoryview(data))


def number(value: int) -> bytes:
    """A long of Avro, which is not negative."""
    left, out = value << 1, b""
    while left > 0x7F:
        out += bytes([left & 0x7F | 0x80])
        left >>= 7
    return out + bytes([left])


def depth_of(value: Any) -> int:
    depth = 0
    while value is not None:
        depth, value = depth + 1, value["next"]
    return depth


def test_avro_is_decoded_up_to_a_depth_and_refused_beyond() -> None:
    decode = avro(CHAIN)
    assert depth_of(decode(b"\x02" * (DEPTH_MAX - 1) + b"\0")) == DEPTH_MAX
    with pytest.raises(HostileValue, match=f"nested deeper than {DEPTH_MAX}"):
        decode(b"\x02" * DEPTH_MAX + b"\0")


@pytest.mark.parametrize("schema", [NULLS, EMPTY])
def test_avro_may_not_claim_more_values_than_its_bytes_allow(schema: object) -> None:
    decode = avro(schema)
    assert len(decode(number(1000) + b"\0")) == 1000
    with pytest.raises(HostileValue, match="claims more than"):
        decode(number(VALUES_MAX + 1) + b"\0")


def test_avro_may_not_claim_more_values_in_several_blocks() -> None:
    with pytest.raises(HostileValue, match="claims more than"):
        avro(NULLS)((number(VALUES_MAX // 2) * 3) + b"\0")


def test_a_long_array_whose_elements_are_there_is_decoded() -> None:
    count = VALUES_MAX + 1
    assert len(avro({"type": "array", "items": "int"})(number(count) + b"\2" * count + b"\0")) == count


def test_a_decimal_of_avro_has_a_limited_size() -> None:
    decode = avro(DECIMALS)

    def one(size: int) -> bytes:
        return b"\2\2k\2" + number(size) + b"\1" * size + b"\0"

    assert len(str(decode(one(DECIMAL_SIZE_MAX))["k"])) > 2000
    with pytest.raises(HostileValue, match=f"a decimal of {DECIMAL_SIZE_MAX + 1} bytes"):
        decode(one(DECIMAL_SIZE_MAX + 1))


def test_a_payload_that_is_walked_through_and_cut_short_is_not_decoded() -> None:
    for payload in (b"\x02" * 3, b"\x02\x0a", b"\xff" * 11):
        with pytest.raises(ValueNotDecoded):
            avro(CHAIN)(payload)


def test_every_kind_of_type_is_walked_through() -> None:
    fields = [
        {"name": "i", "type": "int"},
        {"name": "s", "type": "string"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "m", "type": {"type": "map", "values": "float"}},
        {"name": "own", "type": ["null", {"type": "array", "items": "All"}]},
    ]
    fastavro = pytest.importorskip("fastavro")
    import io

    schema = {"type": "record", "name": "All", "namespace": "x", "fields": fields}
    inner = {"i": -5, "s": "ž", "d": 1.5, "b": True, "e": "B", "f": b"abc", "m": {"k": 2.0}, "own": None}
    value = {**inner, "own": [inner, {**inner, "own": []}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    assert avro(schema)(out.getvalue()) == value


def test_json_is_parsed_up_to_a_depth_and_refused_beyond() -> None:
    assert parse_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    with pytest.raises(HostileValue):
        parse_json(b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1))
    with pytest.raises(HostileValue):
        parse_json(("[" * 100_000).encode("utf-16"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("form", ["{}", " {}\n", "{}x", "{} 1", "{}\0", "\0{}", ""])
@pytest.mark.parametrize(
    "text", ['{"a": [1, "ž", null]}', "1", '"\ud800"', "[1, NaN]", "01", '"\t"', '{"a": 1, "a": 2}']
)
def test_json_is_what_the_library_makes_of_the_bytes(text: str, form: str, encoding: str) -> None:
    data = form.replace("{}", text).encode(encoding, "surrogatepass") if form != "" else b""

    def told(parse: Callable[[bytes], Any]) -> str:
        try:
            return repr(parse(data))
        except ValueError as problem:
            return f"{type(problem).__name__}: {problem}"

    assert told(parse_json) == told(json.loads)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"1", 0),
        (b"[[],[[]]]", 3),
        (b'["[[[["]', 1),
        (b'["\\"[[", {}]', 2),
        (b'["\\\\", [1]]', 2),
        (b'["cut', 1),
        (b"]]][", 0),
    ],
)
def test_brackets_within_strings_are_no_depth(text: bytes, depth: int) -> None:
    assert json_depth(text) == depth


def test_protobuf_may_not_claim_more_fields_than_its_bytes_allow() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped,unused-ignore]

    file = FileDescriptorProto(name="wide.proto", syntax="proto3")
    outer, wide = file.message_type.add(name="Outer"), file.message_type.add(name="Wide")
    repeated, optional = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL
    outer.field.add(name="rows", number=1, label=repeated, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".Wide")
    for at in range(1, 101):
        wide.field.add(name=f"f{at}", number=at, label=optional, type=FieldDescriptorProto.TYPE_INT64)
    decode = protobuf_decoder(Schema("PROTOBUF", file.SerializeToString()))
    rows = decode(memoryview(b"\0" + b"\x0a\x02\x08\x01" * 1000))
    assert isinstance(rows, dict) and len(rows["rows"]) == 1000 and rows["rows"][0]["f1"] == 1
    with pytest.raises(HostileValue, match="claims more than"):
        decode(memoryview(b"\0" + b"\x0a\0" * 6000))


def test_records_that_repeat_one_another_claim_values_without_bytes() -> None:
    """Thirty records, each of which has the next one twice, and a value of no bytes."""
    twice: dict[str, object] = {"type": "record", "name": "R30", "fields": []}
    for each in range(29, -1, -1):
        fields = [{"name": "a", "type": twice}, {"name": "b", "type": f"R{each + 1}"}]
        twice = {"type": "record", "name": f"R{each}", "fields": fields}
    decode = avro_decoder(Schema("AVRO", json.dumps(twice).encode()))
    with pytest.raises(HostileValue, match="claims more than"):
        decode(memoryview(b""))


@given(st.lists(st.sampled_from(["[", "{", "{{{{{{", "x" * 50]), max_size=150).map("".join))
def test_brackets_are_counted_exactly_near_the_bound(text: str) -> None:
    assert has_many_brackets(text.encode()) == (text.count("[") + text.count("{") > DEPTH_MAX)
