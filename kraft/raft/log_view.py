"""What the Raft machine reads of the metadata log: kept in memory, so that no lookup blocks on the disk."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kraft.snapshot.names import SnapshotId


class OffsetAndEpoch(NamedTuple):
    """Where an epoch, or a log, ends; the offset is exclusive."""

    offset: int
    epoch: int


class LogView(Protocol):
    """It shows the log after every effect that was carried out."""

    @property
    def start_offset(self) -> int:
        """0, or the end offset of a snapshot."""

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the newest snapshot where the log has no record; 0 without either."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The greatest epoch in the log that is not greater than the one asked for, and where it ends.

        (start offset, epoch of the earliest snapshot or 0) where every epoch in the log is greater.
        """

    @property
    def earliest_snapshot(self) -> SnapshotId | None: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None: ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """In bytes; None where there is no such snapshot. The bootstrap checkpoint is none."""
