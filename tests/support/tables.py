"""Reading tables of the data source without a JVM: planned as the driver does, each task pickled as to a worker."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

from pyspark_moldau import DefaultSource


def read_table(directory: Path | str, **options: str) -> pa.Table:
    """All rows of a table, in the order of the tasks."""
    source = DefaultSource({"path": str(directory), **options})
    schema = source.schema()
    reader = source.reader(schema)
    tasks = reader.partitions()
    travelled = pickle.loads(pickle.dumps((reader, tasks)))
    batches = [batch for task in travelled[1] for batch in travelled[0].read(task)]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.names == schema.fieldNames()
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in schema.fieldNames()})


def rows_of(directory: Path | str, **options: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = read_table(directory, **options).to_pylist()
    return rows
