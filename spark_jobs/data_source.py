"""`spark.read.format("moldau")`: the records of topics, and what else their files say, as tables.

This module is imported whenever a session looks for its sources: numpy and pyarrow wait until something is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_jobs.options.read_options import ReadOptions, parse_options
from spark_jobs.refusals import DataLost, Refused, warn
from spark_jobs.views.schemas import HEADERS, RECORDS, schema_of

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.datasource import Filter

    from spark_jobs.decoding.record_columns import TimeRange
    from spark_jobs.origins.port import Task
    from spark_jobs.planning.pushed_filters import PushedFilters

TABLES_WITH_PUSHDOWN: Final = ("records", "batches")


class MoldauDataSource(DataSource):
    """See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        """The columns of the table, or those that the option `columns` names; a schema given by the user may name
        fewer, in another order."""
        options = parse_options(self.options)
        return whole_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        columns = columns_of(schema, options)
        if options.table != "records":
            from spark_jobs.views.readers import view_reader

            return view_reader(options, columns)
        if options.pushes_down:
            return FilteringReader(options, columns)
        return SegmentReader(options, columns)


class SegmentReader(DataSourceReader):
    """Plans the read on the driver and decodes records in the tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed: PushedFilters | None = None

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read, one for each task. Raises `Refused`."""
        from spark_jobs.planning.planner import Planner
        from storage.files.local_files import LocalFiles

        tasks = Planner(LocalFiles(), self._options, filters=self._pushed).plan().tasks
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Raises `MalformedMessage` for a corrupt batch, `DataLost` and OSError."""
        task: Task = partition.value or ()  # where there are no tasks, Spark reads one whose value is None
        return self.batches(task, self._columns)

    def batches(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of a task with these columns, slice after slice."""
        from spark_jobs.decoding.record_columns import record_batches

        for each in task:
            try:
                yield from record_batches(each, columns, self._times())
            except DataLost as gone:
                if self._options.fails_on_data_loss:
                    raise type(gone)(f"{gone}; failOnDataLoss=false reads what is there") from None
                warn(f"{gone}: skipped")

    def _times(self) -> TimeRange | None:
        """The range of timestamps that was pushed down."""
        from spark_jobs.decoding.record_columns import TimeRange
        from spark_jobs.planning.pushed_filters import EVERYTHING

        if self._pushed is None or self._pushed.times_us == EVERYTHING:
            return None
        return TimeRange(*self._pushed.times_us)


class FilteringReader(SegmentReader):
    """A reader that takes over predicates. It is a class of its own because Spark refuses every query over a reader
    that only defines `pushFilters` while spark.sql.python.filterPushdown.enabled is false, as it is by default."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from spark_jobs.planning.pushed_filters import FilterReader

        taken = FilterReader()
        left = list(taken.take(filters))
        self._pushed = taken.pushed
        return left


def whole_schema(options: ReadOptions) -> StructType:
    """The columns that are read where the user gives no schema. Raises `Refused`."""
    if not options.columns:
        return schema_of(options)
    known = {field.name.lower(): field for field in every_column(options).fields}
    for name in options.columns:
        if name.lower() not in known:
            names = ", ".join(field.name for field in known.values())
            raise Refused(f"columns: there is no column {name}; the columns are {names}")
    return StructType([known[name.lower()] for name in options.columns])


def every_column(options: ReadOptions) -> StructType:
    return StructType([*RECORDS.fields, HEADERS]) if options.table == "records" else schema_of(options)


def columns_of(schema: StructType, options: ReadOptions) -> list[str]:
    """The columns that a schema names. Raises `Refused` for a column or a type that the table does not have."""
    known = {field.name: field for field in every_column(options).fields}
    for field in schema.fields:
        if field.name not in known:
            raise Refused(f"schema: there is no column {field.name}; the columns are {', '.join(known)}")
        if field != known[field.name]:
            expected = known[field.name].simpleString()
            raise Refused(f"schema: {field.simpleString()} is not {expected}, which may be null")
    return [field.name for field in schema.fields]
