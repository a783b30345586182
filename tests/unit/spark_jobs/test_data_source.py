"""The data source without a JVM: its columns, its tasks, and what it shows if files go away."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.schemas import HEADERS, columns_of, spark_schema
from moldau.spark_jobs.views.schemas import RECORDS as COLUMNS
from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.options.read_options import TABLES, parse_options
from moldau.tables.refusals import Refused
from moldau.tables.views.schemas import COLUMNS as TABLE_COLUMNS
from moldau.tables.views.schemas import arrow_schema
from pyspark_moldau import DefaultSource
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

OPTIONS = parse_options({"path": "/data", "subscribe": "t"})
ALL = StructType([*COLUMNS.fields, HEADERS])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    return tmp_path


def reader(directory: Path, schema: StructType = ALL, **options: str) -> SegmentReader:
    made = DefaultSource({"path": str(directory), "subscribe": "t", **options}).reader(schema)
    assert isinstance(made, SegmentReader)
    return made


def test_the_arrow_columns_are_what_spark_expects_of_the_schema() -> None:
    ours = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in ALL.fieldNames()])
    assert ours.equals(to_arrow_schema(ALL, timezone="UTC"))


@pytest.mark.parametrize("table", TABLES)
def test_both_forms_of_a_schema_are_one(table: str) -> None:
    columns = TABLE_COLUMNS[table]
    assert arrow_schema(columns).equals(to_arrow_schema(spark_schema(columns), timezone="UTC"))


def test_the_schema_is_that_of_the_connector() -> None:
    named = {"path": "/data", "subscribe": "t"}
    assert DefaultSource.name() == "moldau"
    assert DefaultSource(named).schema() == COLUMNS
    assert DefaultSource({**named, "includeHeaders": "true"}).schema() == ALL


def test_a_schema_of_the_user_prunes_columns() -> None:
    assert columns_of(StructType([COLUMNS["offset"], COLUMNS["key"]]), OPTIONS) == ["offset", "key"]
    with pytest.raises(Refused, match="there is no column size"):
        columns_of(StructType().add("size", "long"), OPTIONS)
    with pytest.raises(Refused, match=r"offset:int is not offset:bigint"):
        columns_of(StructType().add("offset", "integer"), OPTIONS)


def test_tasks_travel_and_are_read_elsewhere(directory: Path) -> None:
    made = reader(directory, minPartitions="4")
    tasks = made.partitions()
    assert 2 <= len(tasks) <= 8
    travelled = pickle.loads(pickle.dumps((made, tasks)))
    offsets = [
        offset for task in travelled[1] for batch in travelled[0].read(task) for offset in batch["offset"].to_pylist()
    ]
    assert offsets == list(range(400))


def test_spark_reads_a_task_of_nothing_where_there_are_none(directory: Path) -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(reader(directory).read(InputPartition(None))) == []


def test_a_segment_that_goes_away_is_an_error_or_a_warning(directory: Path) -> None:
    strict, lenient = reader(directory), reader(directory, failOnDataLoss="false")
    (task,) = strict.partitions()
    min((directory / "t-0").glob("*.log")).unlink()
    with pytest.raises(Refused, match="was deleted after the read was planned"):
        list(strict.read(task))
    with pytest.warns(UserWarning, match="was deleted after the read was planned"):
        rows = sum(batch.num_rows for batch in lenient.read(task))
    assert 0 < rows < 400


def test_a_segment_that_retention_takes_away_is_read_to_its_last_minute(directory: Path) -> None:
    made = reader(directory)
    (task,) = made.partitions()
    first = min((directory / "t-0").glob("*.log"))
    first.rename(f"{first}.deleted")
    assert sum(batch.num_rows for batch in made.read(task)) == 400


def test_a_session_that_looks_for_sources_pays_for_no_library() -> None:
    """Spark imports the module at the first look-up of any Python source, whatever that is."""
    program = "import sys, pyspark_moldau; print({'numpy', 'pyarrow', 'zstandard', 'lz4'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
