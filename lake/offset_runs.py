"""The offsets that a data file has, in the order of its rows, as runs in the metadata of the Parquet file.

    moldau.offset-runs   {"is_ordered": true, "runs": [[partition, first, last, rows], …]}

A run is a stretch of rows of one partition with ascending offsets. If it is dense (rows = last - first + 1), the index
of the row with an offset is the number of rows of the runs before it, plus offset - first. Otherwise the offset must be
searched among the rows of its run. If a file has too many runs, neighbours are joined, and are then not dense. If its
rows are in no order, it has one run for each partition, with the least and the greatest offset, and `is_ordered` is
false.

An `OffsetDigest` is a number of offsets, and the sum of their hashes: two sets with equal digests are equal, except for
one pair in 2**64.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS: Final = "moldau.offset-runs"
RUNS_MAX: Final = 4_096
"""The most runs of a file, which take about 100 KB of its metadata."""
WORD: Final = (1 << 64) - 1


class OffsetRun(NamedTuple):
    """A run of rows of one partition with ascending offsets."""

    partition: int
    first: int
    last: int
    rows: int


class OffsetRuns(NamedTuple):
    """The runs of a data file, in the order of its rows."""

    runs: Sequence[OffsetRun]
    is_ordered: bool = True

    def to_json(self) -> str:
        return json.dumps({"is_ordered": self.is_ordered, "runs": self.runs})

    @classmethod
    def of_json(cls, text: bytes) -> OffsetRuns:
        """Parse the runs in the metadata of a file. Raises ValueError, KeyError and TypeError for another text."""
        parsed = json.loads(text)
        return cls([OffsetRun(*map(int, each)) for each in parsed["runs"]], bool(parsed["is_ordered"]))

    def faults(self, partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> Iterator[str]:
        """Yield a message for each run that does not agree with the partitions and offsets of the file's rows. If the
        number of rows differs, yield only a message about that."""
        if sum(each.rows for each in self.runs) != len(offsets):
            yield f"the file has {len(offsets):,} rows, and had {sum(each.rows for each in self.runs):,} once"
            return
        start = 0
        for each in self.runs:
            is_in = slice(start, start + each.rows) if self.is_ordered else partitions == each.partition
            numbers, found = partitions[is_in], offsets[is_in]
            start += each.rows
            is_ascending = not self.is_ordered or bool((np.diff(found) > 0).all())
            bounds = (int(found.min()), int(found.max())) if len(found) else None
            if not is_ascending or not (numbers == each.partition).all() or bounds != (each.first, each.last):
                yield (
                    f"partition {each.partition}: the rows had the offsets {each.first} to {each.last} once, and do "
                    "not have them now"
                )


class RunsBuilder:
    """Builds the runs of a data file while it is written."""

    def __init__(self) -> None:
        self._runs: list[OffsetRun] = []
        self._unordered: dict[int, OffsetRun] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the next rows of the file."""
        found = dense_runs(np.asarray(rows.column("partition")), np.asarray(rows.column("offset")))
        if self._unordered is not None:
            self._join_unordered(found)
            return
        if self._runs and found and follows(self._runs[-1], found[0], gap=1):
            found[0] = join_runs(self._runs.pop(), found[0])
        self._runs += found
        while len(self._runs) > RUNS_MAX and self._unordered is None:
            self._shorten()

    @property
    def runs(self) -> OffsetRuns:
        if self._unordered is not None:
            return OffsetRuns(list(self._unordered.values()), is_ordered=False)
        return OffsetRuns(self._runs)

    def _shorten(self) -> None:
        """Join neighbouring runs. If only few can be joined, the rows count as unordered from then on."""
        shorter: list[OffsetRun] = []
        can_join = False
        for each in self._runs:
            if can_join and follows(shorter[-1], each):
                shorter[-1], can_join = join_runs(shorter[-1], each), False
            else:
                shorter.append(each)
                can_join = True
        if 10 * len(shorter) > 9 * len(self._runs):
            self._unordered = {}
            self._join_unordered(self._runs)
        self._runs = shorter

    def _join_unordered(self, runs: Sequence[OffsetRun]) -> None:
        assert self._unordered is not None
        for each in runs:
            known = self._unordered.get(each.partition, each)
            count = each.rows if known is each else known.rows + each.rows
            first, last = min(known.first, each.first), max(known.last, each.last)
            self._unordered[each.partition] = OffsetRun(each.partition, first, last, count)


def dense_runs(partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> list[OffsetRun]:
    """Divide rows into the longest possible dense runs."""
    if not len(offsets):
        return []
    ends = np.flatnonzero((np.diff(partitions) != 0) | (np.diff(offsets) != 1))
    firsts, lasts = np.r_[0, ends + 1], np.r_[ends, len(offsets) - 1]
    places = zip(partitions[firsts].tolist(), offsets[firsts].tolist(), offsets[lasts].tolist(), strict=True)
    return [OffsetRun(partition, first, last, last - first + 1) for partition, first, last in places]


def follows(before: OffsetRun, after: OffsetRun, gap: int | None = None) -> bool:
    """Whether `after` continues `before`: both are of one partition, and its offsets are higher. With `gap` its first
    offset must be the last one of `before` plus `gap`."""
    is_next = after.first > before.last if gap is None else after.first == before.last + gap
    return before.partition == after.partition and is_next


def join_runs(before: OffsetRun, after: OffsetRun) -> OffsetRun:
    return OffsetRun(before.partition, before.first, after.last, before.rows + after.rows)


class OffsetDigest(NamedTuple):
    """A summary of a set of offsets: their number, and the sum of their hashes modulo 2**64."""

    number: int = 0
    hashes: int = 0

    def plus(self, other: OffsetDigest) -> OffsetDigest:
        return OffsetDigest(self.number + other.number, self.hashes + other.hashes & WORD)


OffsetDigests: TypeAlias = Mapping[int, OffsetDigest]
"""The digest of the offsets of each partition."""


def offset_digest(offsets: NDArray[np.int64]) -> OffsetDigest:
    """Compute the digest of offsets of one partition. The hash of an offset is the last step of SplitMix64."""
    mixed = offsets.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return OffsetDigest(len(offsets), int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64)))


def digests_by_partition(rows: pa.RecordBatch) -> dict[int, OffsetDigest]:
    """Compute the digest of the offsets in records or rows, by partition."""
    partitions, offsets = np.asarray(rows.column("partition")), np.asarray(rows.column("offset"))
    if len(partitions) and partitions.min() == partitions.max():
        return {int(partitions[0]): offset_digest(offsets)}
    return {int(each): offset_digest(offsets[partitions == each]) for each in np.unique(partitions)}


def add_digests(first: OffsetDigests, second: OffsetDigests) -> dict[int, OffsetDigest]:
    """Return the sum of two digests for each partition."""
    return {
        each: first.get(each, OffsetDigest()).plus(second.get(each, OffsetDigest())) for each in {**first, **second}
    }
