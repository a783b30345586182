"""What the Raft machine can read of the metadata log. It is kept in memory, so that no look-up blocks on the disk."""

from __future__ import annotations

from typing import Protocol

from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.late_tuple import NamedTuple


class OffsetAndEpoch(NamedTuple):
    """The end of an epoch or of a log: its exclusive offset and its epoch."""

    offset: int
    epoch: int


class LogView(Protocol):
    """The state of the metadata log, after every effect that was carried out."""

    @property
    def start_offset(self) -> int:
        """The first offset of the log: 0, or the end offset of a snapshot."""

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the newest snapshot if the log has no record; 0 if there is neither."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The greatest epoch in the log that is at most `epoch`, and the end offset of that epoch.

        If every epoch in the log is greater, returns the start offset, with the epoch of the earliest snapshot or 0.
        """

    @property
    def earliest_snapshot(self) -> SnapshotId | None: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None: ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """The size of the snapshot in bytes; None if it does not exist.

        The bootstrap checkpoint does not count as a snapshot.
        """
