"""The last batches of each producer, read back from the log: a snapshot holds only the very last one.

A client with five requests under way when the process ends repeats all five to the next process. Those that were stored
must be known as duplicates; without them the first would be out of order, and the client would give up or write twice.

DIVERGES: Apache Kafka knows only the last batch after a restart from a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from protocol.primitives import MalformedMessage
from protocol.record_batch import CONTROL_BIT, HEADER_SIZE, SEQUENCE_MAX, BatchHeader, parse_header
from storage.producer_state import BATCHES_KEPT, ProducerBatch, ProducerEntry, ProducerStates
from storage.segment import Segment

BLOCKS_MAX = 64
"""How many entries of the offset index one goes back: clients repeat only what was sent last."""

_base_offset = attrgetter("base_offset")


def remember_repeats(segments: Sequence[Segment], producers: ProducerStates) -> None:
    """Add to each producer of a snapshot, while nothing else has been replayed, the batches before its last."""
    wanted = {
        producer_id: entry
        for producer_id, entry in producers.entries.items()
        if entry.batches and entry.batches[0].first_sequence > 0
    }
    if not wanted:
        return
    try:
        for header in _headers_backwards(segments, producers.map_end_offset):
            entry = wanted.get(header.producer_id)
            if entry is not None and not _prepend(entry, header):
                del wanted[header.producer_id]
                if not wanted:
                    return
    except MalformedMessage:
        return  # an index that leads astray: recovery deals with it


def _prepend(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Put a batch before those that are known; False where no more can come."""
    first = entry.batches[0]
    if header.attributes & CONTROL_BIT or header.last_offset >= first.first_offset:
        return True
    batch = ProducerBatch(
        header.base_sequence,
        header.last_sequence,
        header.last_offset,
        header.last_offset_delta,
        header.max_timestamp,
    )
    if (
        header.producer_epoch != entry.producer_epoch
        or (batch.last_sequence + 1) & SEQUENCE_MAX != first.first_sequence
    ):
        return False
    entry.batches.insert(0, batch)
    return len(entry.batches) < BATCHES_KEPT and batch.first_sequence > 0


def _headers_backwards(segments: Sequence[Segment], end_offset: int) -> Iterator[BatchHeader]:
    """The headers of the batches before an offset, last first, as far as the budget goes."""
    left = BLOCKS_MAX
    for segment in reversed(segments[: bisect_left(segments, end_offset, key=_base_offset)]):
        end_position = segment.size
        while end_position > 0 and left > 0:
            left -= 1
            position = segment.offset_index.position_at_or_before(end_offset - 1)
            block = list(_block(segment, position, min(end_position, segment.size), end_offset))
            if not block:
                break
            yield from reversed(block)
            end_position, end_offset = position, block[0].base_offset


def _block(segment: Segment, position: int, end_position: int, end_offset: int) -> Iterator[BatchHeader]:
    file = segment.file()
    while position + HEADER_SIZE <= end_position:
        header = parse_header(file.pread(HEADER_SIZE, position))
        if header.base_offset >= end_offset:
            return
        yield header
        position += header.size
