"""An immutable mapping with cheap updates: a changed copy shares all buckets that the update does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar
from zlib import crc32

K = TypeVar("K")
V = TypeVar("V")

BUCKET_SIZE: Final = 64
"""The average number of entries in a bucket before the map grows. An update of one entry copies one bucket."""
BUCKETS_MIN: Final = 16


def hash_of_text(key: str) -> int:
    """A hash of a text. It is the same in every process, so that the order of iteration is the same, too."""
    return crc32(key.encode())


def hash_of_uuid(key: bytes) -> int:
    return int.from_bytes(key[12:16], "big")


class PersistentMap(Generic[K, V]):
    """An immutable mapping; `with_changes` makes a changed copy.

    The order of iteration depends on the keys and the order of updates, never on Python's hashes.
    """

    __slots__ = ("_buckets", "_place", "_size")

    def __init__(self, place: Callable[[K], int]) -> None:
        self._place = place
        self._buckets: list[dict[K, V]] = [{} for _ in range(BUCKETS_MIN)]
        self._size = 0

    def get(self, key: K) -> V | None:
        return self._buckets[self._place(key) & (len(self._buckets) - 1)].get(key)

    def __getitem__(self, key: K) -> V:
        return self._buckets[self._place(key) & (len(self._buckets) - 1)][key]

    def __contains__(self, key: K) -> bool:
        return key in self._buckets[self._place(key) & (len(self._buckets) - 1)]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def values(self) -> Iterator[V]:
        for bucket in self._buckets:
            yield from bucket.values()

    def items(self) -> Iterator[tuple[K, V]]:
        for bucket in self._buckets:
            yield from bucket.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersistentMap) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def with_changes(self, changes: Mapping[K, V | None]) -> PersistentMap[K, V]:
        """A copy with the entries of `changes`. A key whose new value is None is removed if it exists."""
        if not changes:
            return self
        copy: PersistentMap[K, V] = PersistentMap(self._place)
        copy._size = self._size
        copy._buckets = self._spread(self._size + len(changes))
        own: set[int] = set()
        if copy._buckets is self._buckets:
            copy._buckets = list(self._buckets)
        else:
            own.update(range(len(copy._buckets)))
        mask = len(copy._buckets) - 1
        for key, value in changes.items():
            index = self._place(key) & mask
            if index not in own:
                own.add(index)
                copy._buckets[index] = dict(copy._buckets[index])
            copy._put(copy._buckets[index], key, value)
        return copy

    def _put(self, bucket: dict[K, V], key: K, value: V | None) -> None:
        before = len(bucket)
        if value is None:
            bucket.pop(key, None)
        else:
            bucket[key] = value
        self._size += len(bucket) - before

    def _spread(self, size: int) -> list[dict[K, V]]:
        """The buckets of this map; more buckets with the same entries if `size` entries need more."""
        count = len(self._buckets)
        while size > count * BUCKET_SIZE:
            count *= 2
        if count == len(self._buckets):
            return self._buckets
        spread: list[dict[K, V]] = [{} for _ in range(count)]
        for key, value in self.items():
            spread[self._place(key) & (count - 1)][key] = value
        return spread
