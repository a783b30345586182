"""Random schemas of Avro, Protobuf and JSON, with random values of them: what comes out of a column, and out of the
files of a table, is what was made, null at each depth.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("google.protobuf", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from hypothesis import example, given, settings

from moldau.lake.columns import DecodedColumns, TypedColumn
from moldau.lake.forms import RegistryForm
from moldau.protocol.record_builder import Record
from moldau.tables.values.registry import SchemaSource
from tests.support.lake_stage import START_MS, LakeStage
from tests.support.made_values import Kind, Made, made, made_of_avro
from tests.unit.lake.test_columns import batch

pytestmark = pytest.mark.slow


def framed(payload: bytes) -> bytes:
    return b"\0\0\0\0\7" + payload


@example(made_of_avro(Kind("bytes"), [b"", b"a"]))
@given(made())
@settings(max_examples=200, deadline=None)
def test_a_column_has_the_values_as_they_were_made(made: Made) -> None:
    with TemporaryDirectory() as directory:
        (Path(directory) / f"7.{made.suffix}").write_bytes(made.schema)
        columns = DecodedColumns(TypedColumn("value", RegistryForm(SchemaSource(directory))), has_headers=False)
        rows = columns.rows(batch(*(framed(payload) for _, payload in made.values), None))
    assert rows.misfits == []
    assert rows.batch.column("value").to_pylist() == [*(value for value, _ in made.values), None]


@given(made())
@settings(max_examples=12, deadline=None)
def test_the_files_of_a_table_have_them_too_also_after_they_were_joined(made: Made) -> None:
    with TemporaryDirectory() as directory:
        stage = LakeStage(Path(directory))
        (stage.schemas / f"7.{made.suffix}").write_bytes(made.schema)
        expected: list[Any] = []
        for value, payload in made.values:
            stage.append([Record(b"k", framed(payload), START_MS), Record(b"k", None, START_MS)])
            expected += [value, None]
            stage.follow(registry=str(stage.schemas), compact_files_min=2)
        assert stored(stage) == expected
        assert len(list(stage.table().scan().plan_files())) == 1


def stored(stage: LakeStage) -> list[Any]:
    """The values of a table in the order of their offsets, as its Parquet files have them."""
    files = [task.file.file_path.removeprefix("file://") for task in stage.table().scan().plan_files()]
    rows = pa.concat_tables([pq.ParquetFile(each).read() for each in files], promote_options="default")
    found: list[Any] = rows.sort_by("offset")["value"].to_pylist()
    return found
