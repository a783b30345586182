"""The columns of a table: decoded values, the type that grows with schemas, and the records that do not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from socket import socket
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("pyarrow", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]

from moldau.lake.columns import DecodedColumns, RawColumns, TypedColumn, raw_schema, read_columns
from moldau.lake.forms import RegistryForm
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.refusals import Refused
from moldau.tables.values.registry import RegistryNotReached, SchemaSource, ValueNotDecoded
from tests.support.lake_stage import LakeStage, framed

INT: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
LONG: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
TEXT: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
CLOSED = '{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false}'


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    made = LakeStage(tmp_path)
    for number, schema in enumerate((INT, LONG, TEXT), 1):
        made.put_schema(number, schema)
    return made


def batch(*values: bytes | None) -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.array([b"k"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.timestamp("us", "UTC")),
        pa.nulls(count, COLUMN_TYPES["headers"]),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=raw_schema(read_columns(has_headers=True)))


def test_raw_rows_are_what_was_read() -> None:
    for has_headers in (True, False):
        names = read_columns(has_headers=has_headers)
        assert RawColumns(names).rows(batch(b"x", None)).batch.equals(batch(b"x", None).select(names))


def test_without_a_schema_there_is_no_column_of_values(stage: LakeStage) -> None:
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    assert "value" not in columns.schema.names
    assert columns.rows(batch(None)).batch.num_rows == 1


def test_the_column_holds_the_values_of_each_schema(stage: LakeStage) -> None:
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    first = columns.rows(batch(framed(1, INT, {"a": 1}), None))
    assert first.batch.column("value").type == pa.struct([("a", pa.int32())])
    assert first.batch.column("value").to_pylist() == [{"a": 1}, None]
    second = columns.rows(batch(framed(2, LONG, {"a": 1 << 40}), framed(1, INT, {"a": 2})))
    assert second.batch.column("value").to_pylist() == [{"a": 1 << 40}, {"a": 2}] and not second.misfits
    assert columns.schema.field("value").type == pa.struct([("a", pa.int64())])


def test_what_does_not_fit_is_left_out_with_its_row_and_reason(stage: LakeStage) -> None:
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    good = framed(1, INT, {"a": 1})
    rows = columns.rows(batch(good, framed(3, TEXT, {"a": "x"}), b"", good[:-1], None, framed(9, INT, {"a": 1})))
    assert rows.batch.column("offset").to_pylist() == [0, 4]
    assert [each.row for each in rows.misfits] == [1, 2, 3, 5]
    reasons = [each.reason for each in rows.misfits]
    assert reasons[0] == "schema 3 does not fit the table: value.a is int32, and the schema has string"
    assert (
        "is not framed" in reasons[1] and "does not fit schema 1" in reasons[2] and "schema 9 is not in" in reasons[3]
    )


def test_a_registry_that_does_not_answer_makes_no_record_a_misfit() -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        columns = DecodedColumns(
            TypedColumn("value", RegistryForm(SchemaSource(f"http://127.0.0.1:{closed.getsockname()[1]}"))),
            has_headers=False,
        )
        with pytest.raises(RegistryNotReached, match="schema 1: 127"):
            columns.rows(batch(framed(1, INT, {"a": 1})))


def test_a_value_that_the_type_of_the_table_does_not_hold(stage: LakeStage) -> None:
    (stage.schemas / "5.json").write_text(CLOSED, "utf-8")
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    frame = b"\0\0\0\0\5"
    rows = columns.rows(batch(frame + b'{"a": 1}', frame + b'{"a": "x"}', frame + b'{"a": null}'))
    assert rows.batch.column("value").to_pylist() == [{"a": 1}, {"a": None}]
    assert [each.row for each in rows.misfits] == [1] and "does not fit the column" in rows.misfits[0].reason


def test_a_number_that_no_column_holds_is_a_misfit(stage: LakeStage) -> None:
    (stage.schemas / "5.json").write_text(CLOSED, "utf-8")
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    rows = columns.rows(batch(b"\0\0\0\0\5" + b'{"a": %d}' % (1 << 70), b"\0\0\0\0\5" + b'{"a": 2}'))
    assert rows.batch.column("value").to_pylist() == [{"a": 2}]
    assert [each.row for each in rows.misfits] == [0] and "does not fit the column" in rows.misfits[0].reason


@pytest.mark.parametrize(("library", "number"), [("fastavro", 1), ("google.protobuf.descriptor_pb2", 6)])
def test_a_library_that_is_not_installed_makes_no_record_a_misfit(
    stage: LakeStage, monkeypatch: pytest.MonkeyPatch, library: str, number: int
) -> None:
    (stage.schemas / "6.desc").write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    with pytest.raises(Refused, match=r"needs .*: pip install 'moldau\[schemas\]'") as problem:
        columns.rows(batch(b"\0\0\0\0" + bytes([number]) + b"\0"))
    assert not isinstance(problem.value, ValueNotDecoded)


def two_messages() -> bytes:
    """A file whose first message is First(id) with a message Inner(deep) in it, and whose second is Second(other)."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="the extra moldau[schemas]")
    file = descriptor_pb2.FileDescriptorProto(name="two.proto", syntax="proto3")
    first, second = file.message_type.add(name="First"), file.message_type.add(name="Second")
    inner = first.nested_type.add(name="Inner")
    for message, name in ((first, "id"), (inner, "deep"), (second, "other")):
        message.field.add(name=name, number=1, type=5, label=1)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def of_message(path: bytes, number: int) -> bytes:
    """A framed value of schema 7: a message whose field 1 is a small number."""
    return b"\0\0\0\0\x07" + path + bytes([8, number])


def test_the_message_that_the_frame_names_gives_the_columns_and_the_value(stage: LakeStage) -> None:
    (stage.schemas / "7.desc").write_bytes(two_messages())
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    found = columns.rows(batch(of_message(b"\0", 1), of_message(b"\2\2", 42), of_message(b"\4\0\0", 5)))
    assert found.misfits == []
    assert found.batch.column("value").to_pylist() == [
        {"id": 1, "other": None, "deep": None},
        {"id": None, "other": 42, "deep": None},
        {"id": None, "other": None, "deep": 5},
    ]


@pytest.mark.parametrize("path", [b"\2\4", b"\4\2\0", b"\2\1"], ids=["no third", "none inside", "negative"])
def test_a_message_that_the_schema_does_not_have_is_a_misfit(stage: LakeStage, path: bytes) -> None:
    (stage.schemas / "7.desc").write_bytes(two_messages())
    columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(str(stage.schemas)))), has_headers=False)
    found = columns.rows(batch(of_message(path, 1), of_message(b"\0", 2)))
    assert [each.row for each in found.misfits] == [0]
    assert "message" in found.misfits[0].reason
    assert found.batch.column("value").to_pylist() == [{"id": 2}]
