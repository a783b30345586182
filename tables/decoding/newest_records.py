"""Reads the batches of a slice from the newest to the oldest, and keeps only the last record of each key.

A record is chosen if no newer record has its key. The offset map of the log cleaner (storage/compaction/offset_map.py)
remembers the keys: it stores a salted hash of 128 bits for each key. It reads the keys from the encoded records, so
that only the chosen records are decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader, read_raw_varint, read_raw_varlong
from moldau.storage.compaction import offset_map
from moldau.storage.compaction.offset_map import ENTRY_SIZE, SALT_SIZE, OffsetMap
from moldau.tables.decoding.expansion import Expander
from moldau.tables.decoding.segment_batches import Chunk, expand_batch
from moldau.tables.origins.port import FoundBatch, Slice

LOAD_FACTOR: Final = 0.9
FIRST_MAP_SIZE_MIN: Final = 64 << 10
FIRST_MAP_SIZE_MAX: Final = 32 << 20
"""The size (bytes) of the largest first map, which has room for 1.2 million keys. Each further map is at least twice as
large."""
OFFSET_MAX: Final = (1 << 63) - 1


def is_map_compiled() -> bool:
    """Whether the offset map is compiled from C. The map in Python takes some microseconds for a record, more than
    decoding by numpy."""
    return not str(offset_map.__file__).endswith(".py")


class SeenKeys:
    """The keys of the records that were read so far, from the newest on.

    A key takes 27 bytes if the maps are full, and up to 80 bytes if the last map is nearly empty.
    """

    def __init__(self, records_count: int, *, keeps_tombstones: bool) -> None:
        """`records_count`: about how many records will be read, which determines the size of the first map."""
        self._keeps_tombstones = keeps_tombstones
        self._salt = os.urandom(SALT_SIZE)
        size = int(records_count * ENTRY_SIZE / LOAD_FACTOR)
        self._maps = [self._new_map(max(FIRST_MAP_SIZE_MIN, min(size, FIRST_MAP_SIZE_MAX)))]

    def unseen_records(self, run: BytesLike, count: int, base_offset: int) -> tuple[BytesLike, int]:
        """Select the records of a run whose keys no newer record has, and remember their keys. Returns the selected
        records and their number.

        A run has `count` encoded records with ascending offsets. The caller passes the runs from the newest to the
        oldest. A record without a key is never selected. The key of a tombstone is remembered even if tombstones are
        not kept. Raises `MalformedMessage`.
        """
        has_tombstones = False
        for known in self._maps:
            run, count, _, has_tombstones, _ = known.select_run(run, count, base_offset, True)
            if not count:
                return run, 0
        newest, new_keys_count = self._remember(run, count, base_offset)
        if new_keys_count < count or (has_tombstones and not self._keeps_tombstones):
            run, count, *_ = newest.select_run(run, count, base_offset, self._keeps_tombstones)
        return run, count

    @property
    def keys_count(self) -> int | None:
        """The number of remembered keys; None if there are several maps, because a key may be in each of them."""
        return self._maps[0].count if len(self._maps) == 1 else None

    def select_new_keys(self, keys: pa.Array, offsets: NDArray[np.int64], is_chosen: NDArray[np.uint8]) -> bool:
        """Select the rows of a chunk whose keys no newer row has, and remember their keys and offsets. A row is left
        out if its key was seen before with the same or a later offset. The caller passes the newest chunk first.
        Returns whether all selected keys are remembered.

        `keys`: binary, without nulls. `offsets`: numbers that order the rows of a key, not negative. `is_chosen`: a
        byte for each row; a row with 0 is passed over, and a row that is left out gets 0.
        """
        newest = self._maps[-1]
        if newest.count + len(keys) > newest.count_max:
            newest = self._new_map(max(2 * newest.slots, int((len(keys) + 2) / LOAD_FACTOR)) * ENTRY_SIZE)
            self._maps.append(newest)
        _, ends, data = keys.buffers()
        has_room = True
        for known in self._maps:
            has_room = known.choose_keys(ends, data, offsets.data, is_chosen.data, known is newest)
        return has_room

    def _remember(self, run: BytesLike, count: int, base_offset: int) -> tuple[OffsetMap, int]:
        """Put the keys of a run into one map. Returns this map and the number of keys that it did not have before."""
        newest = self._maps[-1]
        while True:
            before, indexed = newest.count, 0
            if before + count <= newest.count_max:
                indexed = newest.index_run(run, count, base_offset, 0)
                newest.raise_latest_offset(OFFSET_MAX)
            if indexed == count:
                return newest, newest.count - before
            size = max(2 * newest.slots, int((count + 2) / LOAD_FACTOR)) * ENTRY_SIZE
            newest = self._new_map(size)
            self._maps.append(newest)

    def _new_map(self, size: int) -> OffsetMap:
        made = OffsetMap(size, LOAD_FACTOR, self._salt)
        made.raise_latest_offset(OFFSET_MAX)  # A map chooses every record past the offset that it has reached.
        return made


def newest_chunks(
    wanted: Slice,
    stored: list[FoundBatch],
    chunk_size: int,
    met: SeenKeys | None = None,
    expander: Expander | None = None,
) -> Iterator[Chunk]:
    """Yield the batches of a slice in chunks, the newest chunk first. With `met`, only the records that it selects are
    in the chunks.

    `stored` are the batches of the slice in order. They are removed from the list, so that their memory becomes free.
    `expander`: one that keeps `chunk_size` bytes, whose earlier batches are not needed any more.
    Raises `MalformedMessage`, which names the file and the position.
    """
    expander = expander or Expander(chunk_size)
    expander.reuse()
    chunk = Chunk()
    while stored:
        found = stored.pop()
        data, start, end = expand_batch(wanted, found, expander)
        header = found[1]
        if met is not None:
            try:
                run, count = records_in_slice(wanted, header, memoryview(data)[start:end])
                run, count = met.unseen_records(run, count, header.base_offset)
            except MalformedMessage as malformed:
                raise MalformedMessage(f"{wanted.path}, position {found[0]}: {malformed}") from None
            if len(run) < end - start:
                data, start, end = bytes(run), 0, len(run)
            header.records_count = count
            if not count:
                continue
        chunk.add(header, data, start, end)
        if chunk.size >= chunk_size:
            yield chunk.reversed_chunk()
            chunk = Chunk()
            expander.reuse()
    if chunk.bodies:
        yield chunk.reversed_chunk()


def records_in_slice(wanted: Slice, header: BatchHeader, records: memoryview) -> tuple[BytesLike, int]:
    """The encoded records of a batch with offsets of the slice `wanted`, and their number. Raises
    `MalformedMessage`."""
    if wanted.start_offset <= header.base_offset and header.last_offset < wanted.end_offset:
        return records, header.records_count
    try:
        found = list(_records_with_offsets(wanted, header, bytes(records)))
    except IndexError:
        raise MalformedMessage("a record goes past the end of its batch") from None
    return b"".join(found), len(found)


def _records_with_offsets(wanted: Slice, header: BatchHeader, records: bytes) -> Iterator[bytes]:
    end = 0
    for _ in range(header.records_count):
        start = end
        size, at = read_raw_varint(records, start)
        end = at + (size >> 1)
        _, at = read_raw_varlong(records, at + 1)  # A byte of attributes is before the timestamp.
        delta, _ = read_raw_varint(records, at)
        if wanted.start_offset <= header.base_offset + (delta >> 1) < wanted.end_offset:
            yield records[start:end]
