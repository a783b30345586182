"""Spark's readers of the tables of `moldau.tables`: they are planned on the driver, and read in the tasks. A Python
worker of Spark freezes its imports once, for all the tasks that it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.tables.views.readers import TableReader
from moldau.tables.views.records import RecordsReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


class ViewReader(DataSourceReader):
    """Reads a table of `moldau.tables`, task by task."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._reader.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read_task(task_of(partition))


class SegmentReader(RecordsReader, DataSourceReader):
    """Reads the table `records`. The readers of some jobs extend this class.

    No reader has a method `pushFilters`: PySpark keeps what one query pushed for the next ones (decision 31).
    """

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read for Spark, one for each task. Raises `Refused`."""
        return [InputPartition(task) for task in self.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task. Raises `MalformedMessage` for a corrupt batch, `DataLost` and OSError."""
        return self.read_task(task_of(partition))


def task_of(partition: InputPartition) -> Any:
    """The task of a partition of Spark. If a read has no tasks, Spark calls its reader with None: the task is then
    empty."""
    spare_imports()
    return partition.value or ()


@cache
def spare_imports() -> None:
    """Exempt the modules that this process has imported from garbage collection.

    Spark's worker collects garbage after every task; with numpy and pyarrow imported that takes some 20 ms.
    """
    import_module("moldau.tables.decoding.record_columns")
    gc.freeze()
