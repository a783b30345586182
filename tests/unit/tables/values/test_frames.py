"""The schema of a value that a header of its record names: bytes of real serializers, and headers that are none."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("google.protobuf", reason="the extra moldau[schemas] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

import moldau
from moldau.broker.cli.command import main
from moldau.protocol.record_builder import Record, RecordHeader, build_batch
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.values.decoders import FramedValueDecoder
from moldau.tables.values.frames import HeaderFramed, framed_column, framed_data, split_frame
from moldau.tables.values.registry import SchemaSource, ValueNotDecoded
from tests.support.header_frames import AVRO, GUID, WRITTEN, Written, put_schemas
from tests.support.segments import write_checkpoints, write_partition

KEY_ID, VALUE_ID = "__key_schema_id", "__value_schema_id"
FRAMED = bytes.fromhex("00000000070872696e6702")
"""An order of "ring" and 1 whose schema has the id 7, which is before the payload."""
ORDER, RING = AVRO.value, {"customer": "ring", "count": 1}


@pytest.fixture
def schemas(tmp_path: Path) -> str:
    directory = put_schemas(tmp_path / "schemas")
    (Path(directory) / "7.avsc").write_bytes((Path(directory) / f"{GUID}1.avsc").read_bytes())
    return directory


def decoded(schemas: str, data: bytes | None, *headers: RecordHeader, column: str = "value") -> object:
    framed = framed_data(data, headers, column)
    assert framed is not None
    return FramedValueDecoder(SchemaSource(schemas)).decode(framed)


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_header_chooses_the_schema_as_it_was_written(schemas: str, written: Written) -> None:
    assert decoded(schemas, written.data, (VALUE_ID, written.header)) == written.value
    assert decoded(schemas, written.data, (KEY_ID, written.header), column="key") == written.value


def test_a_header_goes_before_a_frame_and_the_last_header_counts(schemas: str) -> None:
    """As DualSchemaIdDeserializer of schema-registry chooses (Java)."""
    header = (VALUE_ID, AVRO.header)
    zeros = WRITTEN["Avro bytes like a frame"]
    assert decoded(schemas, zeros.data, (VALUE_ID, zeros.header)) == zeros.value
    assert decoded(schemas, AVRO.data, ("trace", b"x"), (VALUE_ID, b"\2"), header) == ORDER
    assert decoded(schemas, AVRO.data, header, (KEY_ID, b"\2")) == ORDER
    assert decoded(schemas, AVRO.data, (VALUE_ID, b"\0\0\0\0\7")) == ORDER
    # Without such a header, or with one without a value, the frame is before the payload, with an id or a GUID.
    assert decoded(schemas, FRAMED) == decoded(schemas, FRAMED, (KEY_ID, AVRO.header)) == RING
    assert decoded(schemas, FRAMED, header, (VALUE_ID, None)) == RING
    assert decoded(schemas, AVRO.header + AVRO.data) == ORDER
    assert framed_data(None, [header], "value") is None


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "neither an id nor a GUID: it has nothing"),
        (b"\2" + AVRO.header[1:], "neither an id nor a GUID: it has 02 11 22"),
        (AVRO.header[:16], "neither an id nor a GUID"),
        (b"\0\0\0\7", "neither an id nor a GUID"),
        (AVRO.header[1:].hex().encode(), "neither an id nor a GUID"),
        (b"\3" * 100_000, r"neither an id nor a GUID: it has 03( 03){16}$"),
        (AVRO.header + b"\0", "1 bytes after the schema, which is of AVRO"),
        (WRITTEN["JSON"].header + b"\0\0", "2 bytes after the schema, which is of JSON"),
        (WRITTEN["Protobuf, empty"].header[:17], "ends inside the indexes"),
        (WRITTEN["Protobuf, empty"].header[:-1], "ends inside the indexes"),
        (WRITTEN["Protobuf, empty"].header + b"\0", "1 bytes after the path to the message type"),
        (WRITTEN["Protobuf, empty"].header[:17] + b"\xfe\xff\xff\xff\x0f" + b"\2" * 1000, "indexes of message types"),
        (WRITTEN["Protobuf, empty"].header[:17] + b"\4\0\2", "no message at"),
        (
            b"\1" + b"\xff" * 16,
            r"schema ffffffff-ffff-.* is not in .* without ffffffff-ffff-.*\.avsc, \.desc or \.json",
        ),
        (b"\0\0\0\0\x08", "schema 8 is not in [^,]*$"),
    ],
)
def test_a_header_that_names_no_schema_is_refused_also_if_the_value_has_a_frame(
    schemas: str, header: bytes, reason: str
) -> None:
    for data in (FRAMED, b"\0\0", b""):
        with pytest.raises(ValueNotDecoded, match=reason):
            decoded(schemas, data, (VALUE_ID, header))


def test_the_headers_of_a_column_choose_as_those_of_each_record(schemas: str) -> None:
    rows: list[tuple[bytes | None, list[RecordHeader] | None]] = [
        (AVRO.data, [("a", None), (VALUE_ID, AVRO.header)]),
        (FRAMED, None),
        (None, [(VALUE_ID, AVRO.header)]),
        (FRAMED, []),
        (FRAMED, [(VALUE_ID, AVRO.header), (VALUE_ID, None)]),
        (b"", [(KEY_ID, AVRO.header), (VALUE_ID, b"\2"), (VALUE_ID, AVRO.header)]),
    ]
    entries = [None if each is None else [{"key": name, "value": data} for name, data in each] for _, each in rows]
    headers = pa.array(entries, COLUMN_TYPES["headers"])
    data = pa.array([each for each, _ in rows], pa.binary())
    for column in ("key", "value"):
        expected = [framed_data(each, of_row or (), column) for each, of_row in rows]
        for begin in range(len(rows) + 1):
            found = framed_column(data[begin:], headers[begin:], column)
            assert found == expected[begin:]
            assert [getattr(each, "header", None) for each in found] == [
                getattr(each, "header", None) for each in expected[begin:]
            ]
    assert framed_column(data, None, "value") == data.to_pylist()
    split = split_frame(HeaderFramed(AVRO.data, AVRO.header))
    assert (split.schema_id, bytes(split.payload)) == (UUID(f"{GUID}1"), AVRO.data)


# The readers of topics


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A topic with orders: two by headers, one of them in the key, one by an id before it, a tombstone, a misfit."""
    header = ((VALUE_ID, AVRO.header),)
    records = [
        Record(b"a", AVRO.data, 1, header),
        Record(AVRO.data, FRAMED, 1, ((KEY_ID, AVRO.header), ("trace", b"1"))),
        Record(b"c", None, 1, header),
        Record(b"d", WRITTEN["Avro that begins with zeros"].data, 1, header),
        Record(b"e", AVRO.data, 1, ((VALUE_ID, b"\2"),)),
    ]
    end = write_partition(tmp_path / "logs", [build_batch(records, base_offset=0)])
    write_checkpoints(tmp_path / "logs", {("t", 0): end})
    return str(tmp_path / "logs")


def orders(values: list[str | None]) -> list[object]:
    return [None if each is None else json.loads(each) for each in values]


def test_a_topic_is_read_by_its_headers(place: str, schemas: str) -> None:
    expected = [ORDER, RING, None, {"customer": "", "count": 0}]
    rows = moldau.read_topic(place, "t", end=4, registry=schemas).read_all()
    assert orders(rows["value"].to_pylist()) == expected and "headers" not in rows.schema.names
    only = moldau.read_topic(place, "t", end=4, registry=schemas, columns=["value"], schema="sample").read_all()
    assert only.schema.names == ["value"] and only["value"].to_pylist() == expected
    with pytest.raises(ValueNotDecoded, match="offset 4: the header of the schema's id has neither an id nor a GUID"):
        moldau.read_topic(place, "t", registry=schemas).read_all()
    kept = moldau.read_topic(place, "t", start=4, registry=schemas, on_error="keep").read_all()
    assert kept["misfit"].to_pylist() == [AVRO.data]
    latest = moldau.latest(place, "t", registry=schemas, on_error="null").read_all()
    assert orders(latest.sort_by("offset")["value"].to_pylist()) == [ORDER, RING, {"customer": "", "count": 0}, None]


def test_the_command_reads_by_headers(place: str, schemas: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = 'select value.customer as who from t where "offset" < 2'
    pytest.importorskip("duckdb", reason="the extra moldau[sql] is not installed")
    arguments = ["--path", place, "--registry", schemas, "--schema", "sample", "--misfits", "null"]
    assert main(["read", *arguments, "--sql", query, "--format", "jsonl"]) == 0
    assert [json.loads(line)["who"] for line in capsys.readouterr().out.splitlines()] == ["ada", "ring"]


def test_rows_with_their_headers_are_decoded_by_them(place: str, schemas: str) -> None:
    rows = moldau.read_topic(place, "t", end=2, columns=["key", "value", "headers"]).read_all()
    assert orders(moldau.values(rows, registry=schemas).to_pylist()) == [ORDER, RING]
    keys = moldau.values(rows.slice(1), registry=schemas, column="key")
    assert orders(keys.to_pylist()) == [ORDER]
    with pytest.raises(ValueNotDecoded, match="no header that was read names one"):
        moldau.values(rows.select(["value"]), registry=schemas)
    texts = rows.set_column(2, "headers", pa.array(["x", "y"]))
    with pytest.raises(ValueNotDecoded, match="not framed"):
        moldau.values(texts, registry=schemas)
