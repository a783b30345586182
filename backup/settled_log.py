"""A log as a restore writes it: the batches below its end, with the markers that the restore rewrites and appends."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.backup.observed import ObservedLog
from moldau.backup.settling import LogChanges
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.storage.producers.producer_state import read_transaction_marker


def settled(header: BatchHeader, batch: BytesLike, changes: LogChanges) -> BytesLike:
    """Return a batch as the restored log has it: the commit marker of an undone transaction becomes an abort marker,
    any other batch stays as it is."""
    return aborting(header, batch) if header.base_offset in changes.rewritten else batch


def aborting(header: BatchHeader, batch: BytesLike) -> bytes:
    """Return the abort marker for the commit marker in `batch`, with all other fields unchanged."""
    marker = read_transaction_marker(batch)
    assert marker is not None and marker.is_commit
    return end_transaction_marker(
        commits=False,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
    )


def appended(log: ObservedLog, changes: LogChanges, timestamp_ms: int) -> Iterator[bytes]:
    """Yield the markers that a restore appends to a log, each at the next offset after the last batch."""
    for place, marker in enumerate(changes.markers):
        yield marker.batch(log.end_offset + place, max(0, log.last_epoch), timestamp_ms)
