"""Replays the metadata of a cluster from its newest snapshot and the log after it, and makes a new snapshot of it."""

from __future__ import annotations

from typing import Final

from moldau.backup.sources.port import MetadataSnapshot
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after
from moldau.kraft.record_frame import decode_record
from moldau.kraft.snapshot.batches import load_snapshot, snapshot_batches
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_reader import records_of

EMPTY_IMAGE: Final = SnapshotId(0, 0)


class ReplayedMetadata:
    """The metadata of a cluster, built by replaying a snapshot and the records after it."""

    def __init__(self, snapshot: SnapshotId = EMPTY_IMAGE, data: BytesLike | None = None) -> None:
        """Begin with a metadata snapshot, or with empty metadata. Raises `MalformedMessage`."""
        self._replay, self._quorum = Replay(), QuorumDescription()
        if data is not None:
            self._replay, self._quorum = load_snapshot(data, snapshot)
        self.end_offset, self.epoch = snapshot
        """The end offset of the replayed records, and the epoch of the last one."""
        self._last_ms = 0

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    def replay(self, data: BytesLike, end_offset: int | None = None) -> int:
        """Replay the complete batches in `data`, up to the first one that ends past `end_offset`. Batches that were
        replayed before are skipped.

        Returns the position in `data` after the last complete batch, which may have been skipped or be the batch at
        which the replay stopped. Raises `MalformedMessage` if a batch is damaged or offsets are missing before it.
        """
        batches = iterate_batches(data)
        for position, header in batches:
            if header.next_offset <= self.end_offset:
                continue
            if end_offset is not None and header.next_offset > end_offset:
                break
            if header.base_offset > self.end_offset:
                raise MalformedMessage(f"the metadata log has no offset {self.end_offset}")
            if not crc_is_valid(data, position, header):
                raise MalformedMessage(f"the checksum of the metadata at offset {header.base_offset} is wrong")
            self._replay_batch(data, position, header)
        return batches.position

    def snapshot(self, now_ms: int) -> MetadataSnapshot:
        """Make a snapshot of the replayed metadata, without a metadata transaction that is still open."""
        image = self.image
        batches = snapshot_batches(
            image.snapshot_records(),
            self._quorum,
            metadata_version=image.features.metadata_version,
            epoch=self.epoch,
            last_contained_ms=self._last_ms,
            now_ms=now_ms,
        )
        return MetadataSnapshot(self.end_offset, self.epoch, b"".join(batches))

    def _replay_batch(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        records = records_of(data, position, header)
        if header.is_control:
            for record in records:
                self._quorum = quorum_after(record, self._quorum)
        else:
            values = (decode_record(record.value) for record in records if record.value is not None)
            end = Provenance(header.next_offset, header.partition_leader_epoch, header.max_timestamp)
            self._replay.replay(values, end)
        self.end_offset, self.epoch = header.next_offset, header.partition_leader_epoch
        self._last_ms = max(self._last_ms, header.max_timestamp)
