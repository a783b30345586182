"""The readers of Spark over those of `moldau.tables`: planned on the driver, read in the tasks; and what a Python
worker of Spark does once, for all the tasks that it runs.
"""

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
    """Reads a table, task by task."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._reader.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read_task(task_of(partition))


class SegmentReader(RecordsReader, DataSourceReader):
    """Reads the table `records`; a job's reader does more with the same tasks.

    No reader has a method `pushFilters`: PySpark keeps what one query pushed for the next ones (decision 31).
    """

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read, one for each task. Raises `Refused`."""
        return [InputPartition(task) for task in self.tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Raises `MalformedMessage` for a corrupt batch, `DataLost` and OSError."""
        return self.read_task(task_of(partition))


def task_of(partition: InputPartition) -> Any:
    """The task of a partition. If a read has no tasks, Spark calls its reader with None: that task is empty."""
    spare_imports()
    return partition.value or ()


@cache
def spare_imports() -> None:
    """Keep what this process has imported out of the garbage collector.

    Spark's worker collects garbage after every task; with numpy and pyarrow imported that takes some 20 ms.
    """
    import_module("moldau.tables.decoding.record_columns")
    gc.freeze()
