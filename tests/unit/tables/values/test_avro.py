"""Avro 1.12: names, and each logical type over each base that it allows, as values and as columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("pyarrow", reason="the extra moldau[arrow] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.tables.values.avro import avro_decoder
from moldau.tables.values.avro_types import avro_type
from moldau.tables.values.converters import converter_to
from moldau.tables.values.registry import Reference, Schema, ValueNotDecoded


def schema_of(schema: object, *references: object) -> Schema:
    named = tuple(Reference(f"r{number}", json.dumps(each).encode()) for number, each in enumerate(references))
    return Schema("AVRO", json.dumps(schema).encode(), named)


def number(value: int) -> bytes:
    """A zigzag varint."""
    value = value << 1 ^ value >> 63
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


def stored(schema: object, payload: bytes, *references: object) -> tuple[object, pa.DataType]:
    """A value as it is in its column, and the type of the column."""
    value = avro_decoder(schema_of(schema, *references))(memoryview(payload))
    kind, needs_conversion = avro_type(schema_of(schema, *references))
    return pa.array([converter_to(kind)(value) if needs_conversion else value], kind).to_pylist()[0], kind


def fixed(size: int, **attributes: object) -> dict[str, object]:
    return {"type": "fixed", "name": "F", "size": size, **attributes}


DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}
TIMES = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
DURATION = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("millis", pa.int64())])


@pytest.mark.parametrize(
    ("schema", "payload", "value", "kind"),
    [
        ({"type": "bytes", **DECIMAL}, b"\x04\xd2", Decimal("12.34"), pa.decimal128(9, 2)),
        (fixed(4, **DECIMAL), b"\xff\xff\xff\x85", Decimal("-1.23"), pa.decimal128(9, 2)),
        ({"type": "bytes", **DECIMAL}, b"\x80", Decimal("-1.28"), pa.decimal128(9, 2)),
        ({"type": "bytes", **DECIMAL}, b"\xff\x80", Decimal("-1.28"), pa.decimal128(9, 2)),
        ({"type": "bytes", **DECIMAL, "precision": 40}, b"\x04\xd2", "12.34", pa.string()),
        ({"type": "bytes", "logicalType": "big-decimal"}, sized(b"\xfb\x2e") + number(3), "-1.234", pa.string()),
        ({"type": "string", "logicalType": "uuid"}, sized(b"F81D4FAE-7DEC"), "F81D4FAE-7DEC", pa.string()),
        (fixed(16, logicalType="uuid"), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f", pa.string()),
        ({"type": "int", "logicalType": "date"}, number(-1), date(1969, 12, 31), pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, number(86_399_999), time(23, 59, 59, 999_000), pa.time64("us")),
        ({"type": "long", "logicalType": "time-micros"}, number(1), time(0, 0, 0, 1), pa.time64("us")),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            number(-1),
            datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
            TIMES,
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, number(1), datetime(1970, 1, 1, 0, 0, 0, 1, UTC), TIMES),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            number(1_700_000_000_123_456_789),
            1_700_000_000_123_456_789,
            pa.int64(),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            number(1),
            datetime(1970, 1, 1, 0, 0, 0, 1_000),
            LOCAL,
        ),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, number(1), datetime(1970, 1, 1, 0, 0, 0, 1), LOCAL),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, number(-7), -7, pa.int64()),
        (
            fixed(12, logicalType="duration"),
            b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
            {"months": 1, "days": 2, "millis": (1 << 32) - 1},
            DURATION,
        ),
        # Invalid, unknown or over another base: the specification says to ignore the logical type.
        ({"type": "bytes", "logicalType": "decimal"}, b"\4", b"\4", pa.binary()),
        ({"type": "bytes", **DECIMAL, "scale": 10}, b"\4", b"\4", pa.binary()),
        (fixed(1, **DECIMAL), b"\4", b"\4", pa.binary()),
        (fixed(8, logicalType="uuid"), bytes(8), bytes(8), pa.binary()),
        (fixed(11, logicalType="duration"), bytes(11), bytes(11), pa.binary()),
        ({"type": "int", "logicalType": "timestamp-millis"}, number(5), 5, pa.int32()),
        ({"type": "string", **DECIMAL}, sized(b"x"), "x", pa.string()),
        ({"type": "int", "logicalType": "of another"}, number(5), 5, pa.int32()),
        # Bytes that are the whole value have no length before them (Confluent's clients); within a union they have one.
        ("bytes", b"", b"", pa.binary()),
        ("bytes", b"x", b"x", pa.binary()),
        ({"type": "bytes"}, b"\4ab", b"\4ab", pa.binary()),
        ({"type": {"type": "bytes"}}, b"\4ab", b"\4ab", pa.binary()),
        (["null", "bytes"], b"\2\4ab", b"ab", pa.binary()),
        # Within a union, and by name.
        (
            ["null", fixed(16, logicalType="uuid")],
            b"\2" + bytes(16),
            "00000000-0000-0000-0000-000000000000",
            pa.string(),
        ),
        (["null", {"type": "bytes", **DECIMAL}], b"\0", None, pa.decimal128(9, 2)),
    ],
)
def test_logical_types(schema: object, payload: bytes, value: object, kind: pa.DataType) -> None:
    assert stored(schema, payload) == (value, kind)


@pytest.mark.parametrize(
    ("schema", "payload", "problem"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\xd2", "a decimal of 4 digits"),
        ({"type": "long", "logicalType": "time-micros"}, number(-1), "-1 µs are outside of a day"),
        ({"type": "int", "logicalType": "time-millis"}, number(-1), "-1000 µs are outside of a day"),
        ({"type": "int", "logicalType": "time-millis"}, number(86_400_000), "are outside of a day"),
        ({"type": "bytes", "logicalType": "big-decimal"}, b"\4", "cut short"),
    ],
)
def test_values_that_are_none_of_their_logical_type(schema: object, payload: bytes, problem: str) -> None:
    with pytest.raises(ValueNotDecoded, match=problem):
        avro_decoder(schema_of(schema))(memoryview(payload))


def record(name: str, fields: Mapping[str, object], **attributes: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()], **attributes}


INNER = {"q": "int"}


@pytest.mark.parametrize(
    "schema",
    [
        record("a.b.R", {"i": record("I", INNER), "j": "a.b.I"}, namespace="ignored"),
        record("a.b.R", {"i": record("I", INNER), "j": "I"}),
        record("R", {"i": record("I", INNER), "j": "x.I"}, namespace="x"),
        record("R", {"i": record("I", INNER, namespace=""), "j": "I"}, namespace="x"),
        record("R", {"i": record("y.I", INNER), "j": {"type": "y.I"}}, namespace="x"),
        record("R", {"i": {"type": record("I", INNER)}, "j": "I"}),
        record("R", {"i": record("I", INNER, aliases=["Old"], doc="…"), "j": "I"}),
    ],
)
def test_names_are_found_by_the_rules_of_avro(schema: object) -> None:
    inner = pa.struct([("q", pa.int32())])
    assert stored(schema, number(1) + number(2)) == (
        {"i": {"q": 1}, "j": {"q": 2}},
        pa.struct([("i", inner), ("j", inner)]),
    )


def test_references_are_named_in_full() -> None:
    inner = record("Town", {"name": "string"}, namespace="com.example")
    outer = record("Address", {"town": "Town"}, namespace="com.example")
    schema = record("Person", {"at": "com.example.Address", "born": ["null", "com.example.Town"]})
    value, _ = stored(schema, sized(b"Brno") + b"\0", inner, outer)
    assert value == {"at": {"town": {"name": "Brno"}}, "born": None}


def test_defaults_are_not_needed_to_read() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"], "default": 7}]}
    assert stored(schema, b"\2" + number(1))[0] == {"a": 1}


def test_a_record_without_fields_is_true_and_a_field_that_is_always_null_has_no_column() -> None:
    schema = record(
        "R", {"none": record("E", {}), "nothing": "null", "only": ["null"], "maybe": ["null", "E"], "a": "int"}
    )
    assert stored(schema, b"\0" + b"\0" + number(5)) == (
        {"none": True, "maybe": None, "a": 5},
        pa.struct([("none", pa.bool_()), ("maybe", pa.bool_()), ("a", pa.int32())]),
    )


def test_years_that_no_column_has_are_refused() -> None:
    for kind, base, value in (
        ("timestamp-millis", "long", 1 << 60),
        ("timestamp-micros", "long", 1 << 60),
        ("date", "int", 1 << 30),
    ):
        with pytest.raises((ValueError, OverflowError)):
            avro_decoder(schema_of({"type": base, "logicalType": kind}))(memoryview(number(value)))


@pytest.mark.parametrize("index", [-1, -2, 2])
@pytest.mark.parametrize("schema", [["null", "int"], {"type": "enum", "name": "E", "symbols": ["A", "B"]}])
@pytest.mark.parametrize("within", [lambda schema: schema, lambda schema: record("R", {"of": schema})])
def test_an_index_that_the_schema_does_not_have_is_refused(
    index: int, schema: object, within: Callable[[object], object]
) -> None:
    decode = avro_decoder(schema_of(within(schema)))
    with pytest.raises(ValueNotDecoded, match=f"branch or symbol {index}, which"):
        decode(memoryview(number(index) + number(5)))


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        (["a.A", "a.B"], b"\2\2\x0a", {"of": {"x": 5}}),
        (["a.A", "a.B"], b"\0\x0a", {"x": 5}),
        ("a.B", b"\0", {"of": None}),
        ({"type": "a.A"}, b"\x0a", {"x": 5}),
        ({"type": "array", "items": "a.A"}, b"\2\x0a\0", [{"x": 5}]),
        (["null", {"type": "map", "values": "a.A"}], b"\2\2\2k\x0a\0", {"k": {"x": 5}}),
    ],
)
def test_a_schema_that_only_refers_to_others(schema: object, payload: bytes, value: object) -> None:
    """A union of references is how a topic gets events of several types."""
    one, other = record("a.A", {"x": "int"}), record("a.B", {"of": ["null", "a.A"]})
    assert avro_decoder(schema_of(schema, one, other))(memoryview(payload)) == value
