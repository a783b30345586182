"""`spark.read.format("moldau")`: the records of topics, read from the log directories of a broker.

This module is imported whenever a session looks for its sources: numpy and pyarrow wait until something is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.options import ReadOptions, parse_options
from spark_jobs.partition_files import Refused

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from spark_jobs.planning import Task

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of Spark's Kafka connector; includeHeaders adds `headers`."""
HEADERS: Final = StructField("headers", ArrayType(HEADER))


class MoldauDataSource(DataSource):
    """See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        """All columns; a schema given by the user may name fewer, in another order."""
        options = parse_options(self.options)
        return StructType([*COLUMNS.fields, HEADERS] if options.include_headers else list(COLUMNS.fields))

    def reader(self, schema: StructType) -> DataSourceReader:
        return SegmentReader(parse_options(self.options), columns_of(schema))


class SegmentReader(DataSourceReader):
    """Plans the read on the driver and decodes records in the tasks."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read, one for each task. Raises `Refused`."""
        from spark_jobs.planning import plan
        from storage.files.local_files import LocalFiles

        return [InputPartition(task) for task in plan(LocalFiles(), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Raises `MalformedMessage` for a corrupt batch and OSError."""
        task: Task = partition.value or ()  # where there are no tasks, Spark reads one whose value is None
        return self.batches(task, self._columns)

    def batches(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of a task with these columns, slice after slice."""
        from spark_jobs.record_columns import record_batches
        from storage.files.local_files import LocalFiles

        files = LocalFiles()
        for each in task:
            try:
                yield from record_batches(files, each, columns)
            except FileNotFoundError:
                message = f"{each.path} was deleted after the read was planned"
                if self._options.fails_on_data_loss:
                    raise Refused(f"{message}; failOnDataLoss=false reads what is there") from None
                warnings.warn(f"moldau: {message}", UserWarning, stacklevel=2)


def columns_of(schema: StructType) -> list[str]:
    """The columns that a schema names. Raises `Refused` for a column or a type that the source does not have."""
    known = {field.name: field for field in [*COLUMNS.fields, HEADERS]}
    for field in schema.fields:
        if field.name not in known:
            raise Refused(f"schema: there is no column {field.name}; the columns are {', '.join(known)}")
        if field != known[field.name]:
            expected = known[field.name].simpleString()
            raise Refused(f"schema: {field.simpleString()} is not {expected}, which may be null")
    return [field.name for field in schema.fields]
