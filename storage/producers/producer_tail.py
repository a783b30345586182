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
from protocol.record_batch import CONTROL_BIT, SEQUENCE_MAX, BatchHeader
from storage.producers.producer_state import BATCHES_KEPT, ProducerBatch, ProducerEntry, ProducerStates
from storage.segment.batch_scan import walk_headers
from storage.segment.segment import Segment

HEADERS_MAX = 256
"""How many batches one goes back: clients repeat only what was sent last, and a start must not read whole logs."""
IDLE_MS_MAX = 300_000
"""Who wrote nothing for so long before the last batch has no request in flight: clients give up after two minutes."""

_base_offset = attrgetter("base_offset")


def remember_repeats(segments: Sequence[Segment], producers: ProducerStates) -> None:
    """Add to each producer of a snapshot, while nothing else has been replayed, the batches before its last."""
    since_ms = max((entry.last_timestamp for entry in producers.entries.values()), default=0) - IDLE_MS_MAX
    wanted = {
        producer_id: entry
        for producer_id, entry in producers.entries.items()
        if entry.batches and entry.batches[0].first_sequence > 0 and entry.last_timestamp >= since_ms
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
    left = HEADERS_MAX
    for segment in reversed(segments[: bisect_left(segments, end_offset, key=_base_offset)]):
        end_position = segment.size
        while end_position > 0 and left > 0:
            position = segment.offset_index.position_at_or_before(end_offset - 1)
            block = _headers_before(segment, position, min(end_position, segment.size), end_offset)
            if not block:
                break
            left -= len(block)
            yield from reversed(block)
            end_position, end_offset = position, block[0].base_offset


def _headers_before(segment: Segment, position: int, end_position: int, end_offset: int) -> list[BatchHeader]:
    """Those from a position on that lie before an offset; what follows may be torn after a crash, and is left alone."""
    headers: list[BatchHeader] = []
    for _, header in walk_headers(segment.file(), position, end_position):
        if header.base_offset >= end_offset:
            break
        headers.append(header)
        if header.last_offset + 1 >= end_offset:
            break
    return headers
