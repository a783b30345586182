"""The map of the cleaner: for each key of the dirty part, the offset of its latest record, in bounded memory.

An entry is 24 bytes: 128 bits that stand for the key, and the offset. The map holds no keys, so two keys with the same
128 bits would be taken for one, and the older record of the two would be lost. The bits are two SipHash values, those
of the interpreter's `hash`, over the key behind two secret prefixes. SipHash behind a secret prefix cannot be predicted
from outside, whatever PYTHONHASHSEED is. Two of 10 million keys collide with a probability of 10^-25, and a client
that chooses its keys cannot do better than chance.

Ordinary typed Python that `building/` compiles.
"""

from __future__ import annotations

import mmap as mmap_module
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

ENTRY_SIZE: Final = 24
SALT_SIZE: Final = 32
NOT_FOUND: Final = -1
HUGE_PAGES: int = getattr(mmap_module, "MADV_HUGEPAGE", -1)
"""Linux's advice; -1 on other systems."""
SCATTERED_PROBES: Final = 16
"""Probes at distances that the key decides; further ones go to the neighbours, so that every slot is reached."""


def zeroed_table(slots: int) -> memoryview:
    """Memory for the entries, as 64-bit integers. In huge pages where the system has them: every lookup is at a random
    place, and with small pages the address of that place would mostly not be in the cache of the processor."""
    memory = mmap(-1, slots * ENTRY_SIZE, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    if HUGE_PAGES >= 0:
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(HUGE_PAGES)
    return memoryview(memory)[: slots * ENTRY_SIZE].cast("q")


class OffsetMap:
    """The latest offset of each key, and how far into the log the map reaches."""

    __slots__ = ("_first_salt", "_second_salt", "_table", "count", "count_max", "latest_offset", "slots")

    def __init__(self, memory_size: int, load_factor: float, salt: bytes) -> None:
        """`salt` are `SALT_SIZE` secret random bytes; what the map answers does not depend on them."""
        assert len(salt) == SALT_SIZE
        self.slots: int = memory_size // ENTRY_SIZE
        assert self.slots >= 2, "room for one key, and a free slot that ends every search"
        self.count_max: int = max(1, min(int(self.slots * load_factor), self.slots - 1))
        """The map is full with this many keys: probing gets slow beyond it."""
        self.count: int = 0
        self.latest_offset: int = -1
        """Up to this offset (inclusive) the map has every record with a key that is not of an aborted transaction."""
        self._table = zeroed_table(self.slots)
        self._first_salt: bytes = salt[:16]
        self._second_salt: bytes = salt[16:]

    @property
    def is_full(self) -> bool:
        return self.count >= self.count_max

    @property
    def utilization(self) -> float:
        """The share of the slots in use."""
        return self.count / self.slots

    def put(self, key: bytes, offset: i64) -> None:
        """Store the offset of the latest record of a key. Offsets must ascend, and the map must not be full."""
        first: i64 = hash(self._first_salt + key)
        second: i64 = hash(self._second_salt + key)
        place: i64 = self._place(first, second)
        table = self._table
        if not table[place + 2]:
            table[place] = first
            table[place + 1] = second
            self.count += 1
        table[place + 2] = offset + 1
        self.latest_offset = offset

    def get(self, key: bytes) -> i64:
        """The offset of the latest record of a key, `NOT_FOUND` where the map has none."""
        first: i64 = hash(self._first_salt + key)
        second: i64 = hash(self._second_salt + key)
        found: i64 = self._table[self._place(first, second) + 2]
        return found - 1

    def reach(self, offset: i64) -> None:
        """Raise `latest_offset` over records that do not enter the map: all up to this offset (inclusive) were read."""
        if offset > self.latest_offset:
            self.latest_offset = offset

    def _place(self, first: i64, second: i64) -> i64:
        """The index in the table where a key is, or where it belongs. An entry with the offset field 0 is free."""
        table = self._table
        slots: i64 = self.slots
        slot: i64 = (first & 0x7FFFFFFFFFFFFFFF) % slots
        step: i64 = (second & 0x7FFFFFFFFFFFFFFF) % slots
        probes: i64 = 0
        while True:
            place: i64 = slot * 3
            known: i64 = table[place]
            if known == first and table[place + 1] == second:
                return place
            if not known and not table[place + 2]:
                return place
            probes += 1
            slot += step if probes < SCATTERED_PROBES else 1
            if slot >= slots:
                slot -= slots
