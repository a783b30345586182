"""Reads the last record of each key of a topic. Records are chosen by their keys before their values are copied.

    partitions   are read from the highest to the lowest, each from its newest record back. A record is left out if a
                 newer record of its partition has the same key.
    values       A value is copied unless a higher partition has a record of the key that is at least as late: the
                 record with the latest timestamp counts, and of equal timestamps the one in the highest partition.

So only one value is copied for a key that is in one partition. For a key in several partitions there may be more, among
which the caller chooses by timestamp and partition. A key is represented by 128 bits, hashed with a secret salt
(storage/compaction/offset_map.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.tables.decoding.decoded_rows import COLUMN_TYPES
from moldau.tables.decoding.expansion import Expander
from moldau.tables.decoding.newest_records import SeenKeys, is_map_compiled, newest_chunks
from moldau.tables.decoding.record_columns import arrow_batch, decode_chunk, fastest_decoder
from moldau.tables.decoding.segment_batches import CHUNK_SIZE, batches_with_records
from moldau.tables.decoding.span_rows import decode_spans
from moldau.tables.origins.port import Slice


class CannotSelectByKeys(Exception):
    """The records cannot be chosen by their keys alone."""


class LastOfKeys:
    """The last records of the keys of a topic, in batches in the order of partitions and offsets."""

    def __init__(self) -> None:
        self.rows: list[pa.RecordBatch] = []
        """The last record of each key. If not `is_exact`, a key that is in several partitions may have several records.
        """
        self.is_exact = False
        """Whether each key is in `rows` once."""
        self._superseded: list[_Superseded] = []

    def superseded_records(self) -> list[pa.RecordBatch]:
        """Return the key, partition, offset and timestamp of each superseded record. Such a record is the last of its
        key in its partition, but a higher partition has a record of the key that is at least as late."""
        return [each.records() for each in reversed(self._superseded)]

    def add_superseded_rows(
        self, partition: int, keys: pa.Array, places: NDArray[np.int64], rows: NDArray[np.bool_]
    ) -> None:
        """Note the superseded records of a chunk. `keys`: the keys of all its records. `places`: their offsets and
        their timestamps (microseconds). `rows`: the mask of the superseded records."""
        self._superseded.append(_Superseded(partition, keys, places, rows))


class _Superseded(NamedTuple):
    partition: int
    keys: pa.Array
    places: NDArray[np.int64]
    rows: NDArray[np.bool_]

    def records(self) -> pa.RecordBatch:
        offsets, times_us = self.places[:, self.rows]
        columns = {
            "key": self.keys.filter(pa.array(self.rows)),
            "partition": pa.array(np.full(len(offsets), self.partition, np.int32)),
            "offset": pa.array(offsets),
            "timestamp": pa.array(times_us).view(COLUMN_TYPES["timestamp"]),
        }
        return pa.RecordBatch.from_pydict(columns)


def can_select_by_keys() -> bool:
    """Whether the compiled modules exist. Without them it is faster to decode all records."""
    return is_map_compiled() and fastest_decoder().decode is decode_spans


def last_of_keys(
    slices: Sequence[Slice], columns: Sequence[str], are_fit: Callable[[NDArray[np.int64]], bool]
) -> LastOfKeys:
    """Read the last record of each key of one topic.

    `slices`: the slices of the topic; those of one partition are in order. `columns`: they include `key` and
    `timestamp`. `are_fit`: returns for the timestamps (microseconds) of some records whether all of these may be rows
    of the table.

    Raises `CannotSelectByKeys` if some may not, if a record has no key, or if a key cannot be remembered. Also raises
    what `batches_with_records` and `expand_batch` raise.
    """
    partitions: dict[int, list[Slice]] = {}
    for each in slices:
        partitions.setdefault(each.partition, []).append(each)
    met = SeenKeys(sum(map(_records_count, partitions.values())), keeps_tombstones=True)
    found, expander = LastOfKeys(), Expander(CHUNK_SIZE)
    for partition in sorted(partitions, reverse=True):
        in_partition = SeenKeys(_records_count(partitions[partition]), keeps_tombstones=True)
        choice = _Choice(partition, in_partition, met if len(partitions) > 1 else None, are_fit, found)
        decode = partial(decode_spans, choose=choice.choose)
        for each in reversed(partitions[partition]):
            for chunk in newest_chunks(each, list(batches_with_records(each)), CHUNK_SIZE, None, expander):
                rows = decode_chunk(chunk, each, columns, decode)
                if rows.count:
                    found.rows.append(arrow_batch(rows, each, columns))
    found.rows.reverse()
    found.is_exact = len(partitions) == 1 or met.keys_count == sum(map(len, found.rows))
    return found


def _records_count(slices: Sequence[Slice]) -> int:
    """At least the number of records in slices of one partition."""
    return max(each.end_offset for each in slices) - min(each.start_offset for each in slices)


class _Choice:
    """Chooses among the records of one partition."""

    def __init__(
        self,
        partition: int,
        met: SeenKeys,
        met_in_topic: SeenKeys | None,
        are_fit: Callable[[NDArray[np.int64]], bool],
        into: LastOfKeys,
    ) -> None:
        self._partition = partition
        self._met = met
        self._met_in_topic = met_in_topic
        self._are_fit = are_fit
        self._into = into

    def choose(self, offsets: NDArray[np.int64], times_us: NDArray[np.int64], keys: pa.Array) -> NDArray[np.uint8]:
        """Return a byte for each record of a chunk, which is 0 for a record whose value is not needed. Raises
        `CannotSelectByKeys`."""
        if keys.null_count or not self._are_fit(times_us):
            raise CannotSelectByKeys
        is_chosen = np.ones(len(offsets), np.uint8)
        is_remembered = self._met.select_new_keys(keys, offsets, is_chosen)
        if self._met_in_topic is not None:
            is_last = is_chosen.copy()
            is_remembered &= self._met_in_topic.select_new_keys(keys, (times_us >> 1) + (1 << 62), is_chosen)
            is_superseded = is_last != is_chosen
            if is_superseded.any():
                self._into.add_superseded_rows(self._partition, keys, np.stack((offsets, times_us)), is_superseded)
        if not is_remembered:
            raise CannotSelectByKeys
        return is_chosen
