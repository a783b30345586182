"""Framed values, decoded by schemas of a directory."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.tables.values.column_decoding import PLACE, ColumnDecoding
from moldau.tables.values.converters import converter_to
from moldau.tables.values.decoders import ASKED_AGAIN_S, NOT_HELD, FramedValueDecoder, as_text
from moldau.tables.values.frames import message_path, split_frame
from moldau.tables.values.registry import RegistryNotReached, Schema, SchemaId, SchemaSource, ValueNotDecoded

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "address", "type": ["null", "Address"]},
    ],
}
WHOLE = {**PERSON, "fields": [*PERSON["fields"][:2], {"name": "address", "type": ["null", ADDRESS]}]}
AT = datetime(2026, 1, 2, tzinfo=UTC)
SOMEBODY = {"id": 7, "at": AT, "address": {"town": "Brno"}}


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def avro(schema: object, value: object) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_frames_that_are_none_are_refused() -> None:
    for value in (b"", b"\0\0\0", b'{"a": 1}', b"\1\0\0\0\7x"):
        with pytest.raises(ValueNotDecoded, match="not framed"):
            split_frame(value)
    assert split_frame(framed(7, b"x")).schema_id == 7
    assert message_path(memoryview(b"\0rest"))[0] == [0]
    assert message_path(memoryview(b"\4\2\0rest")) == ([1, 0], memoryview(b"rest"))
    for payload in (b"", b"\4\2", b"\xff" * 6):
        with pytest.raises(ValueNotDecoded):
            message_path(memoryview(payload))


def test_json_and_avro_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    (tmp_path / "2.avsc").write_text(json.dumps(WHOLE))
    values = FramedValueDecoder(SchemaSource(str(tmp_path)))
    assert values.decode(framed(1, b'{"a": [1]}')) == {"a": [1]}
    payload = avro(WHOLE, SOMEBODY)
    found = values.decode(framed(2, payload))
    assert found == SOMEBODY
    assert json.loads(as_text(found)) == {"id": 7, "at": "2026-01-02T00:00:00+00:00", "address": {"town": "Brno"}}
    for value, said in (
        (framed(3, b""), "schema 3 is not in"),
        (framed(1, b"{"), "does not fit schema 1"),
        (framed(2, payload[:-1]), "does not fit schema 2"),
        (framed(2, payload + b"x"), "1 bytes are left over"),
    ):
        with pytest.raises(ValueNotDecoded, match=said):
            values.decode(value)


def test_protobuf_of_a_directory(tmp_path: Path) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = person_file(descriptor_pb2)
    (tmp_path / "5.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    values = FramedValueDecoder(SchemaSource(str(tmp_path)))
    # field 1: 7; field 2: "a", "b"; of the second message type of the file
    assert values.decode(framed(5, b"\2\2" + b"\x08\x07\x12\x01a\x12\x01b")) == {
        "id": 7,
        "names": ["a", "b"],
        "note": None,
    }
    assert values.decode(framed(5, b"\0")) == {}
    with pytest.raises(ValueNotDecoded, match="does not fit schema 5"):
        values.decode(framed(5, b"\2\2\x08"))


def person_file(descriptor_pb2: object) -> object:
    """message Empty {} message Person { int64 id = 1; repeated string names = 2; optional string note = 3; }"""
    file = descriptor_pb2.FileDescriptorProto(name="person.proto", syntax="proto3")  # type: ignore[attr-defined]
    file.message_type.add(name="Empty")
    person = file.message_type.add(name="Person")
    person.field.add(name="id", number=1, type=3, label=1)
    person.field.add(name="names", number=2, type=9, label=3)
    person.oneof_decl.add(name="_note")
    person.field.add(name="note", number=3, type=9, label=1, proto3_optional=True, oneof_index=0)
    return file


def test_a_directory_that_cannot_be_read_does_not_say_that_there_is_no_schema(tmp_path: Path) -> None:
    with pytest.raises(RegistryNotReached, match="gone is not a directory"):
        FramedValueDecoder(SchemaSource(f"file://{tmp_path}/gone")).decode(framed(9, b""))
    (tmp_path / "9.avsc").mkdir()
    with pytest.raises(RegistryNotReached, match="Is a directory"):
        FramedValueDecoder(SchemaSource(str(tmp_path))).decode(framed(9, b""))


def test_where_values_may_be_null_a_registry_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    lenient = ColumnDecoding(SchemaSource(str(tmp_path / "gone")), pa.string(), "null", ())
    with pytest.raises(RegistryNotReached):
        lenient.decode_column(pa.array([framed(1, b"{}")], pa.binary()))


def test_a_schema_that_comes_later_is_found_without_a_request_for_each_value(tmp_path: Path) -> None:
    now_s, asked = [0.0], list[SchemaId]()

    class Source(SchemaSource):
        def schema(self, schema_id: SchemaId) -> Schema:
            asked.append(schema_id)
            return super().schema(schema_id)

    values = FramedValueDecoder(Source(str(tmp_path)), lambda: now_s[0])
    for now_s[0] in (0.0, 1.0, ASKED_AGAIN_S - 1.0):
        with pytest.raises(ValueNotDecoded, match="schema 1 is not in"):
            values.decode(framed(1, b"7"))
    (tmp_path / "1.json").write_text("{}")
    for now_s[0] in (ASKED_AGAIN_S, 10.0 * ASKED_AGAIN_S):
        assert values.decode(framed(1, b"7")) == 7
    assert asked == [1, 1]


def test_each_kind_of_value_has_a_form_in_json() -> None:
    value = {"at": AT, "day": AT.date(), "clock": time(12, 30), "bytes": b"\xff", "amount": Decimal("1.50")}
    assert json.loads(as_text(value)) == {
        "at": "2026-01-02T00:00:00+00:00",
        "day": "2026-01-02",
        "clock": "12:30:00",
        "bytes": "/w==",
        "amount": "1.50",
    }


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    source, columns = SchemaSource(str(tmp_path)), pa.struct([("a", pa.int64()), ("b", pa.string())])
    values = pa.array([framed(1, b'{"a": 1}'), None, framed(1, b'{"a": %d}' % (1 << 70)), b"bare"], pa.binary())
    places = (pa.array(["t"] * 4), pa.array([0] * 4), pa.array([10, 11, 12, 13]))
    strict = ColumnDecoding(source, columns, "fail", PLACE)
    assert strict.decode_column(values[:2], *(each[:2] for each in places)).to_pylist() == [{"a": 1, "b": None}, None]
    with pytest.raises(ValueNotDecoded, match="topic t, partition 0, offset 13: the value is not framed"):
        strict.decode_column(values, *places)
    with pytest.raises(ValueNotDecoded, match="topic t, partition 0, offset 12: the value does not fit the columns"):
        strict.decode_column(values[:3], *(each[:3] for each in places))
    lenient = ColumnDecoding(source, columns, "null", ())
    assert lenient.decode_column(values).to_pylist() == [{"a": 1, "b": None}, None, None, None]


TIMES = {"us": AT.replace(microsecond=1), "ms": AT.replace(microsecond=5_000), "s": AT}


@pytest.mark.parametrize(
    ("kind", "value", "is_held"),
    [
        *((pa.timestamp(unit, "UTC"), at, False) for unit, at in (("s", TIMES["ms"]), ("ms", TIMES["us"]))),
        *((pa.timestamp(unit, "UTC"), at, True) for unit, at in TIMES.items()),
        (pa.timestamp("ns"), TIMES["us"].replace(tzinfo=None), True),
        (pa.timestamp("ns"), AT.replace(year=2300), False),
        *((pa.timestamp("us", "UTC"), number, False) for number in (5, 1.5, 1_700_000_000_000)),
        (pa.date32(), AT.date(), True),
        (pa.date32(), AT, False),
        (pa.date32(), 5, False),
        (pa.time64("us"), time(1, 2, 3, 4), True),
        (pa.time64("us"), 5, False),
        (pa.time32("ms"), time(1, 2, 3, 4), False),
        (pa.time32("ms"), time(1, 2, 3, 4_000), True),
    ],
)
def test_a_column_of_times_takes_no_other_values(kind: pa.DataType, value: object, *, is_held: bool) -> None:
    convert = converter_to(pa.list_(kind), selects=True)
    if is_held:
        assert pa.array([convert([value, None])], pa.list_(kind)).to_pylist() == [[value, None]]
    else:
        with pytest.raises((ValueNotDecoded, *NOT_HELD)):
            pa.array([convert([value])], pa.list_(kind))
