"""A row that moves to another file keeps its values: null, empty and full at each level of a nested type."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from moldau.lake.stored_rows import BATCH_SIZE, cast_to_type, rows_of_file
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage, framed

LEAVES = {pa.int32(): st.integers(-5, 5), pa.string(): st.text("ab", max_size=2), pa.bool_(): st.booleans()}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null among them at each level."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({each.name: values_of(each.type) for each in kind})
    if pa.types.is_map(kind):
        pairs = st.dictionaries(st.text("kl", min_size=1, max_size=2), values_of(kind.item_type), max_size=2)
        return st.none() | pairs.map(lambda found: list(found.items()))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=2)
    return st.none() | LEAVES[kind]


KINDS = st.recursive(
    st.sampled_from(list(LEAVES)),
    lambda inner: st.one_of(
        inner.map(lambda kind: pa.large_list(pa.field("element", kind))),
        inner.map(lambda kind: pa.list_(pa.field("element", kind))),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([pa.field(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=4,
)


def wider(kind: pa.DataType) -> pa.DataType:
    """What the type becomes when its schema grows: int is long, each struct has a field more before the others."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field("new", pa.string()), *(pa.field(each.name, wider(each.type)) for each in kind)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, wider(kind.item_type))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.large_list(pa.field("element", wider(kind.value_type)))
    return pa.int64() if kind == pa.int32() else kind


def grown(value: Any, kind: pa.DataType) -> Any:
    """A value of a type as one of the wider type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {"new": None} | {each.name: grown(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, grown(item, kind.item_type)) for key, item in value]
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return [grown(each, kind.value_type) for each in value]
    return value


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_column_of_a_file_keeps_its_nulls_when_its_type_grows(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    rows = data.draw(st.lists(values_of(kind), max_size=4))
    written = io.BytesIO()
    pq.write_table(pa.table({"value": pa.array(rows, kind)}), written)
    read = pq.ParquetFile(io.BytesIO(written.getvalue())).read().column("value")
    stored = read.chunk(0) if read.num_chunks else pa.array([], kind)
    assert cast_to_type(stored, kind).to_pylist() == rows
    assert cast_to_type(stored, wider(kind)).to_pylist() == [grown(each, kind) for each in rows]
    assert cast_to_type(stored.slice(1), wider(kind)).to_pylist() == [grown(each, kind) for each in rows[1:]]


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


NESTED = record(
    "R",
    structs=optional({"type": "array", "items": record("X", x=optional("int"))}),
    numbers=optional({"type": "array", "items": "int"}),
    mapped=optional({"type": "map", "values": record("Y", y=optional("int"))}),
    struct=optional(record("Z", z=optional("int"), inside=optional({"type": "array", "items": "int"}))),
    holes=optional({"type": "array", "items": ["null", record("Q", q=optional("int"))]}),
)
NULL = {"structs": None, "numbers": None, "mapped": None, "struct": None, "holes": None}
EMPTY = {
    "structs": [],
    "numbers": [],
    "mapped": {},
    "struct": {"z": None, "inside": None},
    "holes": [None, {"q": None}],
}
FULL = {
    "structs": [{"x": 1}, {"x": None}],
    "numbers": [1],
    "mapped": {"k": {"y": None}},
    "struct": {"z": 1, "inside": []},
    "holes": [{"q": 1}, None],
}


def stored_values(stage: LakeStage) -> dict[bytes, Any]:
    """The values by key, from the Parquet files as they are."""
    found = {}
    for each in stage.table().scan().plan_files():
        for row in pq.read_table(each.file.file_path.removeprefix("file://")).to_pylist():
            value = row["value"]
            found[row["key"]] = {**value, "mapped": None if value["mapped"] is None else dict(value["mapped"])}
    return found


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_null_and_empty_stay_what_they_are_when_files_are_replaced(tmp_path: Path, mode: str) -> None:
    stage = LakeStage(tmp_path)
    stage.put_schema(1, NESTED)
    followed: dict[str, Any] = {"mode": mode, "registry": str(stage.schemas), "compact_files_min": 3}

    def put(**values: Any) -> None:
        stage.append([Record(key.encode(), framed(1, NESTED, value), START_MS) for key, value in values.items()])
        stage.follow(**followed)

    put(null=NULL, empty=EMPTY, full=FULL)
    put(other=FULL)
    put(null2=NULL, other2=EMPTY)
    put(null3=NULL, full=FULL)
    files = len(list(stage.table().scan().plan_files()))
    assert files < 4, "files were replaced"
    expected = {b"null": NULL, b"empty": EMPTY, b"full": FULL, b"other": FULL}
    assert stored_values(stage) == expected | {b"null2": NULL, b"other2": EMPTY, b"null3": NULL}


@pytest.mark.parametrize(("value_size", "rows"), [(100, 3_000), (10_000, 800)])
def test_a_batch_of_long_values_has_fewer_rows(value_size: int, rows: int) -> None:
    values = pa.array([os.urandom(value_size) for _ in range(rows)], pa.binary())
    written = io.BytesIO()
    pq.write_table(pa.table({"offset": pa.array(range(rows)), "value": values}), written, use_dictionary=False)
    batches = list(rows_of_file(pq.ParquetFile(io.BytesIO(written.getvalue())), pa.schema([("value", pa.binary())])))
    assert max(each.nbytes for each in batches) <= BATCH_SIZE * 1.1
    assert pa.Table.from_batches(batches)["value"].combine_chunks().equals(values)
    narrow = list(rows_of_file(pq.ParquetFile(io.BytesIO(written.getvalue())), pa.schema([("offset", pa.int64())])))
    assert sum(each.num_rows for each in narrow) == rows
