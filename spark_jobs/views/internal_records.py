"""Tables over an internal topic: the last record of each key of a partition, decoded.

The records are read as read_committed: offsets of a transaction count once it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from moldau.spark_jobs.options.read_options import ReadOptions
from moldau.spark_jobs.views.latest_rows import last_rows
from moldau.spark_jobs.views.python_worker import task_of
from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.rows import Row, row_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa  # type: ignore[import-untyped]


class InternalReader(SegmentReader):
    """The reader of a table over an internal topic. `decode` makes the row of a key and a value; None for keys of other
    types.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[str],
        schema: StructType,
        decode: Callable[[bytes, bytes], Row | None],
    ) -> None:
        super().__init__(options, columns)
        self._schema = schema
        self._decode = decode

    def partitions(self) -> list[InputPartition]:
        slices = [each for task in self.plan().tasks for each in task]
        return [InputPartition(tuple(group)) for _, group in groupby(slices, lambda each: each.partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `SegmentReader.read`.

        Raises `MalformedMessage` for a record of a version that Apache Kafka 4.3.1 does not define.
        """
        task = task_of(partition)
        last: dict[bytes, bytes] = {}
        for batch in self.batches(task, ("key", "value")):
            rows = last_rows(batch)
            for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
                if value is None:
                    last.pop(key, None)
                else:
                    last[key] = value
        decoded = (self._decode(key, value) for key, value in last.items())
        return row_batches((row for row in decoded if row is not None), self._schema, self._columns)
