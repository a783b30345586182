"""The table `latest`: the last record of each key of a partition.

A task reads one partition from its end backwards, and remembers digests of the keys that it has read: a digest has 16
bytes and takes about 100 bytes of memory in its set. Records without a key are left out; those without a value are
shown where `tombstones=keep` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from spark_jobs.views.latest_rows import last_rows
from spark_jobs.views.records import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from spark_jobs.origins.port import Slice, Task

SLICE_SIZE: Final = 16 << 20
"""Bytes of segments that a task holds decoded at once."""
DIGEST_SIZE: Final = 16


class LatestViewReader(SegmentReader):
    """The reader of the table, which has one row for each key and partition."""

    def partitions(self) -> list[InputPartition]:
        slices = [each for task in self.plan(SLICE_SIZE).tasks for each in task]
        return [InputPartition(tuple(group)) for _, group in groupby(slices, lambda each: (each.topic, each.partition))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Task = partition.value or ()
        met: set[bytes] = set()
        for each in reversed(task):
            last = self._last_of(each)
            if last is not None:
                rows = first_met(last, met)
                if not self._options.keeps_tombstones:
                    rows = rows.filter(rows.column("value").is_valid())
                if rows.num_rows:
                    yield rows.select(self._columns)

    def _last_of(self, wanted: Slice) -> pa.RecordBatch | None:
        """The last row of each key of a slice."""
        import pyarrow as pa

        needed = list(dict.fromkeys([*self._columns, "key", "value"]))
        kept = [last_rows(batch) for batch in self.batches_of(wanted, needed)]
        return last_rows(pa.concat_batches(kept)) if kept else None


def first_met(rows: pa.RecordBatch, met: set[bytes]) -> pa.RecordBatch:
    """The rows whose keys were not read before. Adds these keys to the remembered ones."""
    import numpy as np

    is_new = np.zeros(rows.num_rows, np.bool_)
    for row, key in enumerate(rows.column("key").to_pylist()):
        digest = key if len(key) <= DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE + 1).digest()
        if digest not in met:
            met.add(digest)
            is_new[row] = True
    return rows.filter(is_new)
