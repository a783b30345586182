"""The table `records`: planned on the driver, decoded in the tasks; and what a Python worker of Spark does once, for
all the tasks that it runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.spark_jobs.options.read_options import ReadOptions
from moldau.spark_jobs.refusals import DataLost, warn

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.datasource import Filter, InputPartition

    from moldau.spark_jobs.decoding.record_columns import TimeRange
    from moldau.spark_jobs.origins.port import Slice, Task
    from moldau.spark_jobs.planning.planner import Plan
    from moldau.spark_jobs.planning.pushed_filters import PushedFilters


class SegmentReader(DataSourceReader):
    """Plans the read on the driver and decodes records in the tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed: PushedFilters | None = None

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read, one for each task. Raises `Refused`."""
        return [InputPartition(task) for task in self.plan().tasks]

    def plan(self, task_size: int | None = None) -> Plan:
        """The plan of the read. Raises `Refused`; OSError and `CorruptCheckpoint` of the files."""
        from moldau.spark_jobs.planning.planner import Planner
        from moldau.storage.files.local_files import LocalFiles

        planner = Planner(LocalFiles(), self._options, filters=self._pushed, task_size=task_size)
        return planner.plan()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Raises `MalformedMessage` for a corrupt batch, `DataLost` and OSError."""
        task = task_of(partition)
        return self.batches(task, self._columns)

    def batches(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of a task with these columns, slice after slice."""
        for each in task:
            yield from self.batches_of(each, columns)

    def batches_of(self, wanted: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of a slice. Missing records raise an error; with failOnDataLoss=false they are a warning."""
        from moldau.spark_jobs.decoding.record_columns import record_batches

        try:
            yield from record_batches(wanted, columns, self._times())
        except DataLost as gone:
            self.report(gone)

    def report(self, gone: DataLost) -> None:
        """Raise the error, or with failOnDataLoss=false warn."""
        if self._options.fails_on_data_loss:
            raise type(gone)(f"{gone}; failOnDataLoss=false reads what is there") from None
        warn(f"{gone}: skipped")

    def _times(self) -> TimeRange | None:
        """The range of timestamps that was pushed down."""
        from moldau.spark_jobs.decoding.record_columns import TimeRange
        from moldau.spark_jobs.planning.pushed_filters import EVERYTHING

        if self._pushed is None or self._pushed.times_us == EVERYTHING:
            return None
        return TimeRange(*self._pushed.times_us)


class FilteringReader(SegmentReader):
    """A reader that accepts predicates.

    It is a separate class, because Spark refuses every query over a reader with a method `pushFilters` while
    spark.sql.python.filterPushdown.enabled is false, which is its default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from moldau.spark_jobs.planning.pushed_filters import FilterReader

        reader = FilterReader()
        left = list(reader.accept(filters))
        self._pushed = reader.pushed
        return left


def task_of(partition: InputPartition) -> Task:
    """The task of a partition. Where a read has no tasks, Spark calls its reader with None: that task is empty."""
    spare_imports()
    task: Task = partition.value or ()
    return task


@cache
def spare_imports() -> None:
    """Keep what this process has imported out of the garbage collector.

    Spark's worker collects garbage after every task; with numpy and pyarrow imported that takes some 20 ms.
    """
    import_module("moldau.spark_jobs.decoding.record_columns")
    gc.freeze()
