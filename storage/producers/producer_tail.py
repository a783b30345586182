"""The last batches of each producer, read from the log, because a snapshot holds only the last one.

A client with five requests in flight when the broker restarts sends all five again. The ones that were stored must be
recognized as duplicates. Otherwise the first of them would be out of order, and the client would fail.

DIVERGES: Apache Kafka knows only the last batch after a restart from a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, SEQUENCE_MAX, BatchHeader
from moldau.storage.producers.producer_state import BATCHES_KEPT, ProducerBatch, ProducerEntry, ProducerStates
from moldau.storage.segment.batch_scan import walk_headers
from moldau.storage.segment.segment import Segment

HEADERS_MAX = 256
"""The most batches that are read: clients repeat only their latest batches, and a start must not read whole logs."""
IDLE_MS_MAX = 300_000
"""A producer whose last batch is older than the newest batch of the log by this time (ms) has no request in flight:
clients give up after delivery.timeout.ms, by default two minutes.
"""

_base_offset = attrgetter("base_offset")


def remember_repeats(segments: Sequence[Segment], producers: ProducerStates) -> None:
    """Add to each producer of a snapshot its batches before the last one. Call it only right after the snapshot was
    restored.
    """
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
        return  # An index entry does not point at the start of a batch; recovery rebuilds the index.


def _prepend(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Add a batch before the known ones. False where earlier batches of the producer need not be remembered."""
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
    """The headers of the batches before an offset, the last one first, at most about `HEADERS_MAX`."""
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
    """The headers of the batches between two positions of a segment, as far as they begin before `end_offset`.

    The scan stops at that offset, because a crash may have torn the bytes after it.
    """
    headers: list[BatchHeader] = []
    for _, header in walk_headers(segment.file(), position, end_position):
        if header.base_offset >= end_offset:
            break
        headers.append(header)
        if header.last_offset + 1 >= end_offset:
            break
    return headers
