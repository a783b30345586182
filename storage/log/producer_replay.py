"""Restores the producer state of a log: from the newest snapshot, and then from the batches after it.

This is needed when a log is opened and when it is truncated. A snapshot is written at each roll, so that at most about
one segment of batch headers is read. That can take seconds, so a truncation does it in steps (`load_in_steps`).

A snapshot holds only the last batch of each producer; the batches before it are read from the log
(`restore_earlier_batches`). If the broker restarts while a client has five requests in flight, the client sends all
five again. Those that were stored must be recognized as duplicates. Otherwise the first of them would be refused as out
of order, and the client would fail.

DIVERGES: Apache Kafka knows only the last batch after a restart from a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, SEQUENCE_MAX, BatchHeader
from moldau.storage.producers.producer_snapshot import ProducerSnapshots
from moldau.storage.producers.producer_state import (
    BATCHES_KEPT,
    ProducerBatch,
    ProducerEntry,
    ProducerStates,
    read_transaction_marker,
)
from moldau.storage.segment.batch_run import TransactionalBatchFields
from moldau.storage.segment.batch_scan import DamagedBatch, FilePieces, iterate_batch_headers, verified_batch
from moldau.storage.segment.segment import Segment

STEP_SIZE = 100
"""The number of batch headers that one step reads."""
HEADERS_MAX = 256
"""The most batch headers that `restore_earlier_batches` reads: clients repeat only their latest batches, and a start
must not read whole logs."""
IDLE_MS_MAX = 300_000
"""The age (ms) of a producer's last batch, compared with the newest batch of the log, from which on the producer has no
request in flight: clients give up after delivery.timeout.ms, by default two minutes."""

_base_offset = attrgetter("base_offset")


def load_producers(
    segments: list[Segment],
    snapshots: ProducerSnapshots,
    producers: ProducerStates,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    snapshot_offset_max: int | None = None,
    *,
    earlier: list[Segment] | None = None,
) -> None:
    """Restore `producers` to the state at `end_offset`, at which `segments` end.

    `snapshot_offset_max`: the highest offset of a snapshot that may be used (None: `end_offset`). `earlier`: the
    segments with the batches before the snapshot (None: `segments`). Raises OSError and `MalformedMessage`.
    """
    offset_max = end_offset if snapshot_offset_max is None else snapshot_offset_max
    latest = snapshots.load_latest(log_start_offset, offset_max)
    for _ in load_in_steps(segments, latest, producers, log_start_offset, end_offset, now_ms, earlier=earlier):
        pass


def load_in_steps(
    segments: list[Segment],
    snapshot: tuple[int, list[ProducerEntry]] | None,
    producers: ProducerStates,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    earlier: list[Segment] | None = None,
    end_position: int | None = None,
) -> Iterator[None]:
    """Restore `producers` from a snapshot, which is given with its offset, to the state at `end_offset`. Each step
    takes about a millisecond. Between the steps the segments may be removed from their log.

    `end_position`: the end of the batches before `end_offset` in the last segment (None: its size). Raises OSError and
    `MalformedMessage`.
    """
    if snapshot is None:
        producers.clear(log_start_offset)
    else:
        producers.restore(snapshot[1], snapshot[0], now_ms)
        restore_earlier_batches(earlier or segments, producers)
    for segment, next_offset in zip(
        segments, [*(later.base_offset for later in segments[1:]), end_offset], strict=False
    ):
        if producers.map_end_offset < next_offset:
            is_last = segment is segments[-1]
            yield from _replay_in_steps(
                segment, producers, segment.size if end_position is None or not is_last else end_position
            )
    producers.map_end_offset = max(producers.map_end_offset, end_offset)


def replay_producers(segment: Segment, producers: ProducerStates, end_position: int) -> None:
    """Replay the batches of a segment into the producer state, from `producers.map_end_offset` on, up to `end_position`
    in the file.

    Raises OSError; `MalformedMessage` if a batch that the producer state then remembers is damaged.
    """
    for _ in _replay_in_steps(segment, producers, end_position):
        pass


def _replay_in_steps(segment: Segment, producers: ProducerStates, end_position: int) -> Iterator[None]:
    first_offset = producers.map_end_offset
    opened, position = segment.open_file(), segment.start_position(first_offset)
    headers = iterate_batch_headers(opened.file, position, segment.size)
    for number, (batch_position, header) in enumerate(headers, start=1):
        if batch_position >= end_position:
            break
        # The log start offset may lie within a batch, whose later records may belong to a transaction.
        if header.next_offset > producers.map_end_offset:
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            batch = opened.file.pread(header.size, batch_position) if is_marker else None
            replay_batch(segment, producers, header, batch)
        if not number % STEP_SIZE:
            yield
    try:
        yield from _check_remembered_batches(segment, producers, first_offset, end_position)
    except DamagedBatch as damage:
        raise MalformedMessage(f"{segment.path('.log')}: {damage}") from damage


def replay_batch(
    segment: Segment, producers: ProducerStates, header: BatchHeader, marker_batch: memoryview | bytes | None
) -> None:
    """Apply a stored batch to the producer state. An aborted transaction is also added to the segment's transaction
    index, unless it is there already.

    `marker_batch`: the bytes of a batch that is a transaction marker. Any other batch is replayed from its header
    alone.
    """
    completed = producers.replay(header, None if marker_batch is None else read_transaction_marker(marker_batch))
    if completed is not None and completed.is_aborted:
        known = segment.transaction_index.entries()
        if not known or known[-1].last_offset < completed.last_offset:
            segment.transaction_index.append(producers.transaction_index_entry(completed))


def replay_transactional(segment: Segment, producers: ProducerStates, batches: list[TransactionalBatchFields]) -> None:
    """Apply the transactional batches and markers that `BatchRun.check_batches` has collected to the producer
    state, in order."""
    header = BatchHeader()
    for (
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp,
        marker_batch,
    ) in batches:
        replay_batch(segment, producers, header, marker_batch or None)


def _check_remembered_batches(
    segment: Segment, producers: ProducerStates, first_offset: int, end_position: int
) -> Iterator[None]:
    """Verify the checksums of the batches that the producer state remembers, in steps. Raises OSError and
    `DamagedBatch`.

    Batches that end before `first_offset` or begin at or past `end_position` are left out, and so are producers whose
    last batch is more than `IDLE_MS_MAX` older than the newest batch in the producer state.

    These batches decide whether a client's next batch is new or a duplicate. A damaged header among them would cause
    the broker to refuse or drop a valid batch. They are therefore checked even below the recovery point, although
    recovery may verify no batches there.
    """
    since_ms = max((entry.last_timestamp for entry in producers.entries.values()), default=0) - IDLE_MS_MAX
    remembered = {
        batch.last_offset
        for entry in producers.entries.values()
        if entry.last_timestamp >= since_ms
        for batch in entry.batches
        if batch.last_offset >= first_offset
    }
    if not remembered:
        return
    opened, start = segment.open_file(), segment.start_position(min(remembered))
    headers = iterate_batch_headers(opened.file, start, segment.size)
    for number, (position, header) in enumerate(headers, start=1):
        if position >= end_position:
            return
        is_remembered = header.last_offset in remembered
        if is_remembered:
            verified_batch(FilePieces(opened.file, position, position + header.size), position)
        if is_remembered or not number % STEP_SIZE:
            yield


def restore_earlier_batches(segments: Sequence[Segment], producers: ProducerStates) -> None:
    """Add to each producer of a restored snapshot the batches before its last one. Called only right after the snapshot
    was restored."""
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
    """Add a batch before the remembered batches of a producer. Returns False if no earlier batch of the producer is
    needed."""
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
    """Yield the headers of the batches before an offset, the last one first, at most about `HEADERS_MAX`."""
    left = HEADERS_MAX
    for segment in reversed(segments[: bisect_left(segments, end_offset, key=_base_offset)]):
        end_position = segment.size
        while end_position > 0 and left > 0:
            position = segment.start_position(end_offset - 1)
            block = _headers_before(segment, position, min(end_position, segment.size), end_offset)
            if not block:
                break
            left -= len(block)
            yield from reversed(block)
            end_position, end_offset = position, block[0].base_offset


def _headers_before(segment: Segment, position: int, end_position: int, end_offset: int) -> list[BatchHeader]:
    """Return the headers of the batches between two positions of a segment that begin before `end_offset`.

    The scan stops at that offset, because a crash may have torn the bytes after it.
    """
    headers: list[BatchHeader] = []
    for _, header in iterate_batch_headers(segment.file(), position, end_position):
        if header.base_offset >= end_offset:
            break
        headers.append(header)
        if header.last_offset + 1 >= end_offset:
            break
    return headers
