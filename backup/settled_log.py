"""The batches of a restored log: the batches of the backup, then the markers that the restore appends. The commit
markers of transactions that the restore aborts are abort markers."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.backup.observed import LogObserver
from moldau.backup.settling import MarkerChanges
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.storage.producers.producer_state import read_transaction_marker


def restored_batch(header: BatchHeader, batch: BytesLike, changes: MarkerChanges) -> BytesLike:
    """Return a batch as the restored log has it. The commit marker of an aborted transaction becomes an abort marker;
    any other batch is unchanged.
    """
    return abort_marker_for(header, batch) if header.base_offset in changes.aborted_marker_offsets else batch


def abort_marker_for(header: BatchHeader, batch: BytesLike) -> bytes:
    """Turn a commit marker into an abort marker with the same fields."""
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


def appended_markers(log: LogObserver, changes: MarkerChanges, timestamp_ms: int) -> Iterator[bytes]:
    """Yield the markers that a restore appends to a log, one at each offset after the last batch."""
    for place, marker in enumerate(changes.appended_markers):
        yield marker.encode_batch(log.end_offset + place, max(0, log.last_epoch), timestamp_ms)
