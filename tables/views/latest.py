"""The table `latest`: the last record of each key of a partition.

A task reads one partition from its end backwards, and remembers the keys that it has met: up to 80 bytes a key. It also
holds the stored batches of one slice, and the decoded records of one chunk. Records without a key are left out; those
without a value are shown only with `tombstones=keep`.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Final

from moldau.tables.refusals import DataLost
from moldau.tables.views.records import RecordsReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.origins.port import FoundBatch, Slice, Task

SLICE_SIZE: Final = 16 << 20
"""The bytes of stored batches that a task holds at once."""


class LatestReader(RecordsReader):
    """The reader of the table `latest`, which has one row for each key and partition."""

    def tasks(self) -> list[Task]:
        slices = [part for task in self.plan(SLICE_SIZE).tasks for each in task for part in parts_of(each, SLICE_SIZE)]
        return [tuple(group) for _, group in groupby(slices, lambda each: (each.topic, each.partition))]

    def read_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task in chunks, the newest chunk of a partition first. Raises what
        `RecordsReader.read_task` raises."""
        from moldau.tables.decoding.newest_records import is_map_compiled

        return self._from_chosen_records(task) if is_map_compiled() else self._from_all_records(task)

    def _from_chosen_records(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task if the map of keys is compiled: records are chosen before they are decoded."""
        from moldau.tables.decoding.newest_records import SeenKeys, newest_chunks
        from moldau.tables.decoding.record_columns import arrow_batch, decode_chunk, fastest_decoder

        decode, chunk_size = fastest_decoder()
        records_count = sum(each.end_offset - each.start_offset for each in task)
        met = SeenKeys(records_count, keeps_tombstones=self._options.keeps_tombstones)
        for each in reversed(task):
            for chunk in newest_chunks(each, self._stored(each), chunk_size, met):
                yield arrow_batch(decode_chunk(chunk, each, self._columns, decode), each, self._columns)

    def _from_all_records(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task if the map of keys is not compiled: records are decoded before they are chosen."""
        from moldau.tables.decoding.newest_records import newest_chunks
        from moldau.tables.decoding.record_columns import arrow_batch, decode_chunk, fastest_decoder

        decode, chunk_size = fastest_decoder()
        needed = list(dict.fromkeys([*self._columns, "key", "value"]))
        met: set[bytes] = set()
        for each in reversed(task):
            for chunk in newest_chunks(each, self._stored(each), chunk_size):
                rows = first_of_keys(
                    last_rows(arrow_batch(decode_chunk(chunk, each, needed, decode), each, needed)), met
                )
                if not self._options.keeps_tombstones:
                    rows = rows.filter(rows.column("value").is_valid())
                if rows.num_rows:
                    yield rows.select(self._columns)

    def _stored(self, wanted: Slice) -> list[FoundBatch]:
        """Return the stored batches of a slice that have records."""
        from moldau.tables.decoding.segment_batches import batches_with_records

        stored: list[FoundBatch] = []
        try:
            for found in batches_with_records(wanted):
                stored.append(found)
        except DataLost as gone:
            self.report(gone)
        return stored


def parts_of(wanted: Slice, size_max: int) -> Iterator[Slice]:
    """Yield the parts of a slice, of about `size_max` bytes each, if its source is read by offsets. Otherwise yield the
    slice."""
    from moldau.tables.origins.port import BatchSource

    if wanted.size <= size_max or not isinstance(wanted.source, BatchSource):
        yield wanted
        return
    start_offset, end_offset = wanted.start_offset, wanted.end_offset
    step = max(1, (end_offset - start_offset) * size_max // wanted.size)
    for start in range(start_offset, end_offset, step):
        end = min(end_offset, start + step)
        size = wanted.size * (end - start) // (end_offset - start_offset)
        yield wanted._replace(start_offset=start, end_offset=end, start_position=0, end_position=size)


DIGEST_SIZE: Final = 16
"""The size (bytes) of a key above which a digest is remembered instead of the key."""


def last_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last row of each key, in order. Rows without a key are left out."""
    import numpy as np

    coded = batch.column("key").dictionary_encode()
    if len(coded.dictionary) == batch.num_rows:  # All keys differ, and none is null: nothing is copied.
        return batch
    rows = np.arange(batch.num_rows)
    codes = np.asarray(coded.indices.fill_null(0))
    if coded.null_count:
        has_key = np.asarray(coded.is_valid())
        codes, rows = codes[has_key], rows[has_key]
    last = np.zeros(len(coded.dictionary), np.int64)
    np.maximum.at(last, codes, rows)  # numpy does not say which of several values an assignment keeps.
    return batch.take(np.sort(last))


def first_of_keys(rows: pa.RecordBatch, met: set[bytes]) -> pa.RecordBatch:
    """Return the rows whose keys are not in `met`, and add these keys to it. A key takes about 100 bytes in the set."""
    import numpy as np

    is_new = np.zeros(rows.num_rows, np.bool_)
    for row, key in enumerate(rows.column("key").to_pylist()):
        digest = key if len(key) <= DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE + 1).digest()
        if digest not in met:
            met.add(digest)
            is_new[row] = True
    return rows.filter(is_new)
