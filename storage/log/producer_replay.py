"""Restores the producer state of a log: from the newest snapshot, and then from the batches after it.

This is needed when a log is opened and when it was truncated. A snapshot is written at each roll, so that at most about
one segment of batch headers is read.
"""

from __future__ import annotations

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, BatchHeader
from moldau.storage.log.verified_batch import DamagedBatch, Pieces, verified_batch
from moldau.storage.producers.producer_snapshot import ProducerSnapshots
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.producers.producer_tail import IDLE_MS_MAX, remember_repeats
from moldau.storage.producers.transaction_marker import read_transaction_marker
from moldau.storage.segment.batch_run import InTransaction
from moldau.storage.segment.segment import Segment


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
    """Restore `producers` to the state at `end_offset`, the end of `segments`.

    `snapshot_offset_max`: the highest offset of a snapshot that may be used, by default `end_offset`. `earlier`: the
    segments with the batches before the snapshot, by default `segments`. Raises OSError and `MalformedMessage`.
    """
    latest = snapshots.load_latest(log_start_offset, end_offset if snapshot_offset_max is None else snapshot_offset_max)
    if latest is None:
        producers.clear(log_start_offset)
    else:
        producers.restore(latest[1], latest[0], now_ms)
        remember_repeats(earlier or segments, producers)
    for segment, next_offset in zip(
        segments, [*(later.base_offset for later in segments[1:]), end_offset], strict=False
    ):
        if producers.map_end_offset < next_offset:
            replay_producers(segment, producers, segment.size)
    producers.map_end_offset = max(producers.map_end_offset, end_offset)


def replay_producers(segment: Segment, producers: ProducerStates, end_position: int) -> None:
    """Apply to the producer state the batches of a segment that it has not seen, up to a position in the file.

    Raises OSError; `MalformedMessage` where one of these batches is damaged and the producer state remembers it.
    """
    first_offset = producers.map_end_offset
    for batch_position, header in segment.headers(segment.offset_index.position_at_or_before(first_offset)):
        if batch_position >= end_position:
            break
        # The log start offset may lie within a batch, whose later records may belong to a transaction.
        if header.next_offset > producers.map_end_offset:
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            batch = segment.file().pread(header.size, batch_position) if is_marker else None
            replay_batch(segment, producers, header, batch)
    try:
        check_remembered(segment, producers, first_offset, end_position)
    except DamagedBatch as damage:
        raise MalformedMessage(f"{segment.path('.log')}: {damage}") from damage


def replay_batch(
    segment: Segment, producers: ProducerStates, header: BatchHeader, marker_batch: memoryview | bytes | None
) -> None:
    """Apply a stored batch to the producer state. An abort is also added to the transaction index unless it is there.

    `marker_batch`: the bytes of a transaction marker; other batches are replayed from their header alone.
    """
    completed = producers.replay(header, None if marker_batch is None else read_transaction_marker(marker_batch))
    if completed is not None and completed.is_aborted:
        known = segment.transaction_index.entries()
        if not known or known[-1].last_offset < completed.last_offset:
            segment.transaction_index.append(producers.aborted(completed))


def replay_transactional(segment: Segment, producers: ProducerStates, batches: list[InTransaction]) -> None:
    """Apply the batches and markers of transactions that a walk has collected (`BatchRun`), in order."""
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


def check_remembered(segment: Segment, producers: ProducerStates, first_offset: int, end_position: int) -> None:
    """Verify the checksums of the batches that the producer state remembers. Raises OSError and `DamagedBatch`.

    These batches decide whether a client's next batch is new or a duplicate. A damaged header among them would cause
    the broker to refuse or drop a valid batch. They are therefore checked even below the recovery point, where recovery
    checks no batches.
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
    file = segment.file()
    for position, header in segment.headers(segment.offset_index.position_at_or_before(min(remembered))):
        if position >= end_position:
            return
        if header.last_offset in remembered:
            verified_batch(Pieces(file, position, position + header.size), position)
