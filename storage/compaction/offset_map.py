"""The map of the cleaner: for each key of the dirty part, the offset of its latest record, in bounded memory.

Records are read and selected in their encoded form, and no object is built for a record. protocol/record_batch.py
describes the framing of a record. The headers of a record are skipped: its size gives its end.

An entry is 24 bytes: 128 bits that stand for the key, and the offset. The map holds no keys, so two keys with the same
128 bits would count as the same key, and the older of the two records would be lost. The bits are those of SipHash with
a secret salt, so they cannot be predicted from outside. Two of 10 million keys collide with a probability of 10^-25,
and a client that chooses its keys cannot do better than chance.

The map also notes the fate of each record that it has read: whether the record is kept. If all records of a batch have
the same fate, the batch need not be decompressed and searched a second time.

offset_map.c is the compiled form, with the same names and the same results (`tests/unit/storage/compaction` compares
them). Python imports it instead of this module if `building/` has compiled it.
"""

from __future__ import annotations

import mmap as mmap_module
from contextlib import suppress
from itertools import pairwise
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import read_raw_varint, read_raw_varlong

ENTRY_SIZE: Final = 24
SALT_SIZE: Final = 32
NOT_FOUND: Final = -1
FATES_MAX: Final = 32 << 20
"""The maximum number of offsets whose fate is kept, at one byte each. Later offsets are looked up in the map again."""
NOT_NOTED: Final = 0
"""The fate is not known: no record with a key was added for the offset, or its fate is not kept (`FATES_MAX`)."""
SUPERSEDED: Final = 1
LATEST: Final = 2
"""The fate of the latest record of a key, if it has a value."""
LATEST_TOMBSTONE: Final = 3
"""The fate of the latest record of a key, if it has no value."""

INT64_MIN: Final = -(1 << 63)
HUGE_PAGES: int = getattr(mmap_module, "MADV_HUGEPAGE", -1)
"""The flag of Linux's madvise for huge pages; -1 on other systems."""
SCATTERED_PROBES: Final = 16
"""The number of probes of one search that are spread over the table, at a distance that depends on the key.

Further probes go to neighbouring slots, so that every slot is reached.
"""


def zeroed_table(slots: int) -> memoryview:
    """Return zeroed memory for `slots` entries, as 64-bit integers.

    The memory is in huge pages if the system has them. Lookups are at random positions, and with small pages the
    processor's address cache (TLB) would miss most of them.
    """
    memory = mmap(-1, slots * ENTRY_SIZE, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    if HUGE_PAGES >= 0:
        with suppress(OSError):  # The kernel has no huge pages.
            memory.madvise(HUGE_PAGES)
    return memoryview(memory)[: slots * ENTRY_SIZE].cast("q")


class OffsetMap:
    """The offset of the latest record of each key, and the offset up to which the log has been read for the map."""

    __slots__ = (
        "_fates",
        "_first_fate_offset",
        "_first_salt",
        "_second_salt",
        "_table",
        "count",
        "count_max",
        "latest_offset",
        "slots",
    )

    def __init__(
        self, memory_size: int, load_factor: float, salt: bytes, first_offset: int = 0, offsets_count: int = 0
    ) -> None:
        """`salt`: `SALT_SIZE` secret random bytes, on which the results of the map do not depend. Fates are noted for
        `offsets_count` offsets from `first_offset` on, at most `FATES_MAX`."""
        assert len(salt) == SALT_SIZE
        self.slots: int = memory_size // ENTRY_SIZE
        assert self.slots >= 2, "room for one key, and a free slot that ends every search"
        self.count_max: int = max(1, min(int(self.slots * load_factor), self.slots - 1))
        """The number of keys at which the map counts as full, because probing would become slow."""
        self.count: int = 0
        self.latest_offset: int = -1
        """The last offset (inclusive) up to which the map has every record with a key, except aborted ones."""
        self._table = zeroed_table(self.slots)
        self._first_salt: bytes = salt[:16]
        self._second_salt: bytes = salt[16:]
        self._first_fate_offset: int = first_offset
        self._fates = bytearray(max(0, min(offsets_count, FATES_MAX)))

    @property
    def is_full(self) -> bool:
        return self.count >= self.count_max

    def put(self, key: bytes, offset: int, is_tombstone: bool = False) -> None:
        """Store the offset of the latest record of a key. Offsets must ascend, and the map must not be full."""
        if offset <= self.latest_offset:
            self.forget_fates()
        first = hash(self._first_salt + key)
        second = hash(self._second_salt + key)
        place = self._place(first, second)
        table = self._table
        if not table[place + 2]:
            table[place] = first
            table[place + 1] = second
            self.count += 1
        else:
            self._note(table[place + 2] - 1, SUPERSEDED)
        table[place + 2] = offset + 1
        self._note(offset, LATEST_TOMBSTONE if is_tombstone else LATEST)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The offset of the latest record of a key; `NOT_FOUND` if the map does not have the key."""
        first = hash(self._first_salt + key)
        second = hash(self._second_salt + key)
        return self._table[self._place(first, second) + 2] - 1

    def raise_latest_offset(self, offset: int) -> None:
        """Raise `latest_offset` to `offset`, unless it is higher already. The caller has read all records up to
        `offset` (inclusive), including those that are not put into the map.
        """
        if offset > self.latest_offset:
            self.latest_offset = offset

    def forget_fates(self) -> None:
        """Forget the fates of all records. Called when offsets do not ascend any more, because fates are stored by
        ascending offset."""
        self._fates = bytearray()

    def fate(self, first_offset: int, count: int) -> int:
        """Return the fate that the records at `count` offsets from `first_offset` on share; `NOT_NOTED` if their fates
        differ or are not known."""
        start = first_offset - self._first_fate_offset
        if start < 0 or count <= 0 or start + count > len(self._fates):
            return NOT_NOTED
        fate = self._fates[start]
        return fate if self._fates.count(fate, start, start + count) == count else NOT_NOTED

    def _note(self, offset: int, fate: int) -> None:
        if 0 <= offset - self._first_fate_offset < len(self._fates):
            self._fates[offset - self._first_fate_offset] = fate

    def _place(self, first: int, second: int) -> int:
        """The index in the table of the entry for a key, given the two hashes of the key; the index of a free entry if
        the key has none. An entry whose offset field is 0 is free."""
        table = self._table
        slots = self.slots
        slot = (first & 0x7FFFFFFFFFFFFFFF) % slots
        step = (second & 0x7FFFFFFFFFFFFFFF) % slots
        probes = 0
        while True:
            place = slot * 3
            known = table[place]
            if known == first and table[place + 1] == second:
                return place
            if not known and not table[place + 2]:
                return place
            probes += 1
            slot += step if probes < SCATTERED_PROBES else 1
            if slot >= slots:
                slot -= slots

    def choose_keys(
        self, ends: BytesLike, data: BytesLike, offsets: BytesLike, is_chosen: BytesLike, takes_keys: bool
    ) -> bool:
        """Choose the latest row of each key, unless the map has the key with the same or a later offset.

        The rows whose `is_chosen` is not 0 are read from the last to the first. A row that is superseded gets 0. The
        offset of any other row is put into the map; a key that the map does not have is only added with `takes_keys`,
        and if the map is not full. Returns whether there was room for all new keys.

        `ends` and `data`: the keys in the layout of Arrow's binary type, without nulls. `offsets`: 64 bits for each
        row, not negative. `is_chosen`: a byte for each row.
        """
        positions, numbers = memoryview(ends).cast("B").cast("i"), memoryview(offsets).cast("B").cast("q")
        keys, chosen = memoryview(data).cast("B"), memoryview(is_chosen).cast("B")
        count = len(chosen)
        assert len(positions) > count and len(numbers) >= count, "the keys and offsets of the rows"
        limits = [0, *positions[: count + 1], len(keys)] if count else []
        assert all(low <= high for low, high in pairwise(limits)), "the keys and offsets of the rows"
        has_room = True
        for row in range(count - 1, -1, -1):
            if not chosen[row]:
                continue
            key = bytes(keys[positions[row] : positions[row + 1]])
            known = self.get(key)
            if known >= numbers[row]:
                chosen[row] = 0
            elif known != NOT_FOUND or (takes_keys and not self.is_full):
                self.put(key, numbers[row])
            elif takes_keys:
                has_room = False
        return has_room

    def index_run(self, records: BytesLike, count: int, base_offset: int, start_offset: int) -> int:
        """Put the keys of the records at or past `start_offset` into the map; there must be exactly `count` records.

        Returns how many records were read: less than `count` if the map is full. Raises `MalformedMessage`.
        """
        try:
            return self._index(bytes(records), count, base_offset, start_offset)
        except IndexError:
            raise MalformedMessage("a record goes past the end of its batch") from None

    def _index(self, run: bytes, count: int, base_offset: int, start_offset: int) -> int:
        limit = len(run)
        at = 0
        for number in range(count):
            size = run[at]
            at += 1
            if size >= 0x80:
                size, at = read_raw_varint(run, at - 1)
            end = at + (size >> 1)
            if size & 1 or end > limit:
                raise MalformedMessage(f"record {number} goes past the end of its batch")
            delta = run[at + 1]  # Byte 0 holds the attributes; no bit of them is defined.
            at += 2
            if delta >= 0x80:
                delta, at = read_raw_varlong(run, at - 1)
            delta = run[at]
            at += 1
            if delta >= 0x80:
                delta, at = read_raw_varint(run, at - 1)
            size = run[at]
            at += 1
            if size >= 0x80:
                size, at = read_raw_varint(run, at - 1)
            key_end = key_end_of(number, size, at, end)
            if size != 1:
                offset = base_offset + ((delta >> 1) ^ -(delta & 1))
                if offset >= start_offset:
                    if self.count >= self.count_max:
                        return number
                    self.put(run[at:key_end], offset, run[key_end] == 1)
            at = end
        if at != limit:
            raise MalformedMessage(f"{limit - at} bytes after the {count} records of the batch")
        return count

    def select_run(
        self, records: BytesLike, count: int, base_offset: int, keeps_tombstones: bool
    ) -> tuple[BytesLike, int, int, bool, int]:
        """Select the records that compaction keeps from `count` encoded records, one after another.

        A record past `latest_offset` is kept. Any other record is kept if it is the latest of its key; a tombstone only
        with `keeps_tombstones`. Returns the kept records as they are encoded, their number, their largest timestamp
        delta (ms), whether one of them has no value, and the number of records up to `latest_offset` without a key.
        Raises `MalformedMessage`.
        """
        try:
            return self._select(bytes(records), count, base_offset, keeps_tombstones)
        except IndexError:
            raise MalformedMessage("a record goes past the end of its batch") from None

    def _select(
        self, run: bytes, count: int, base_offset: int, keeps_tombstones: bool
    ) -> tuple[bytes, int, int, bool, int]:
        limit = len(run)
        latest_offset = self.latest_offset
        max_delta = INT64_MIN
        kept_count = 0
        without_key_count = 0
        has_tombstones = False
        span_start = -1
        parts: list[bytes] = []
        at = 0
        for number in range(count):
            start = at
            size = run[at]
            at += 1
            if size >= 0x80:
                size, at = read_raw_varint(run, at - 1)
            end = at + (size >> 1)
            if size & 1 or end > limit:
                raise MalformedMessage(f"record {number} goes past the end of its batch")
            timestamp = run[at + 1]
            at += 2
            if timestamp >= 0x80:
                timestamp, at = read_raw_varlong(run, at - 1)
            delta = run[at]
            at += 1
            if delta >= 0x80:
                delta, at = read_raw_varint(run, at - 1)
            offset = base_offset + ((delta >> 1) ^ -(delta & 1))
            size = run[at]
            at += 1
            if size >= 0x80:
                size, at = read_raw_varint(run, at - 1)
            is_kept = offset > latest_offset
            key_end = key_end_of(number, size, at, end)
            is_tombstone = run[key_end] == 1
            if not is_kept:
                if size == 1:
                    without_key_count += 1
                elif keeps_tombstones or not is_tombstone:
                    fate = self.fate(offset, 1)
                    is_kept = offset >= self.get(run[at:key_end]) if fate == NOT_NOTED else fate != SUPERSEDED
            if is_kept:
                kept_count += 1
                if span_start < 0:
                    span_start = start
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
                if timestamp > max_delta:
                    max_delta = timestamp
                if is_tombstone:
                    has_tombstones = True
            elif span_start >= 0:
                parts.append(run[span_start:start])
                span_start = -1
            at = end
        if at != limit:
            raise MalformedMessage(f"{limit - at} bytes after the {count} records of the batch")
        if span_start >= 0:
            parts.append(run[span_start:])
        return b"".join(parts), kept_count, max_delta, has_tombstones, without_key_count


def key_end_of(number: int, size: int, start: int, end: int) -> int:
    """Return the end position of a record's key. Raises `MalformedMessage` if the record has no byte left for the size
    of its value.

    `size`: the key's size before zig-zag decoding; `start`: the position of the key; `end`: the end of the record.
    """
    if size & 1 and size != 1:
        raise MalformedMessage(f"record {number} has a key of a negative size")
    key_end = start + (size >> 1)
    if key_end >= end:
        raise MalformedMessage(f"record {number} has a key past its end")
    return key_end
