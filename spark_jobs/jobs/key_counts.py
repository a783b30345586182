"""Counting keys in bounded memory, as a task does it for the hot keys of a report.

A table holds a count for each key. When it is full, the keys with the smallest counts are dropped, and `missed_max`
becomes the most records that a dropped key may have had. A key that enters later may have been dropped before: it keeps
the `missed_max` of that moment as the bound by which its count may be too small. A key that entered before anything was
dropped, and stayed, has an exact count; a hot key is such a key, unless it becomes hot late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

KEYS_MAX: Final = 1 << 17
"""Keys in memory."""
SIZE_MAX: Final = 64 << 20
"""Bytes of keys in memory."""
REPORTED_MAX: Final = 1 << 14
"""Keys that a task hands on."""


class KeyCount(NamedTuple):
    """A key has between `records` and `records + missed` records."""

    key: bytes
    records: int
    missed: int


class KeyCounts:
    """The counts of the keys of one topic."""

    def __init__(self, *, keys_max: int = KEYS_MAX, size_max: int = SIZE_MAX) -> None:
        self._keys_max = keys_max
        self._size_max = size_max
        self._counts: dict[bytes, int] = {}
        self._missed: dict[bytes, int] = {}
        """The bounds other than 0."""
        self._size = 0
        self.missed_max = 0
        """No absent key has more records than this."""
        self.without_key = 0

    def add_column(self, keys: pa.Array) -> None:
        """Count the keys of a batch of rows."""
        self.without_key += keys.null_count
        counted = keys.drop_null().value_counts()
        self.add(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))

    def add(self, counted: Iterable[tuple[bytes, int]]) -> None:
        """Add counts of keys."""
        counts = self._counts
        for key, count in counted:
            before = counts.get(key)
            if before is not None:
                counts[key] = before + count
                continue
            counts[key] = count
            self._size += len(key)
            if self.missed_max:
                self._missed[key] = self.missed_max
            if len(counts) > self._keys_max or self._size > self._size_max:
                self._shrink(self._keys_max // 2, self._size_max // 2)
                counts = self._counts

    def top(self, keys_max: int = REPORTED_MAX) -> list[KeyCount]:
        """The keys with the largest counts; the others are dropped."""
        if len(self._counts) > keys_max:
            self._shrink(keys_max, self._size_max)
        return [KeyCount(key, count, self._missed.get(key, 0)) for key, count in self._counts.items()]

    def _shrink(self, keys_max: int, size_max: int) -> None:
        """Keep the largest counts, as many as there is room for."""
        dropped_max = 0
        kept: dict[bytes, int] = {}
        size = 0
        for key, count in sorted(self._counts.items(), key=lambda each: -each[1]):
            if len(kept) < keys_max and size + len(key) <= size_max:
                kept[key] = count
                size += len(key)
            else:
                dropped_max = max(dropped_max, count + self._missed.pop(key, 0))
        self._counts, self._size = kept, size
        self.missed_max = max(self.missed_max, dropped_max)
