"""A metadata log without bytes: records are values, a sync is an offset, a snapshot is the records before its end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.raft.log_view import OffsetAndEpoch
from moldau.kraft.snapshot.names import SnapshotId


class Entry(NamedTuple):
    epoch: int
    value: object
    description: QuorumDescription | None = None
    """Of the quorum, as the batch that begins here leaves it."""


class Snapshot(NamedTuple):
    entries: tuple[Entry, ...]
    quorum: QuorumDescription


class ReplicatedLog:
    """`LogView`, and what a disk would do. Survives a crash up to `durable_end_offset`."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        """From the start offset on."""
        self.durable_end_offset = 0
        self.snapshots: dict[SnapshotId, Snapshot] = {}
        self.truncations = 0
        """A sync that began before one says nothing of what came after it."""

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return max((each.epoch for each in self.snapshots), default=0)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        found = self.snapshots.get(snapshot_id)
        return None if found is None else len(found.entries)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if end == 0:
            earliest = self.earliest_snapshot
            return OffsetAndEpoch(self.start_offset, earliest.epoch if earliest is not None else 0)
        return OffsetAndEpoch(self.start_offset + end, self.entries[end - 1].epoch)

    def append(self, entries: Sequence[Entry]) -> list[tuple[int, QuorumDescription]]:
        """What they say of the quorum, by offset."""
        base_offset = self.end_offset
        self.entries += entries
        described = enumerate(entries, base_offset)
        return [(offset, entry.description) for offset, entry in described if entry.description is not None]

    def read(self, offset: int, count_max: int) -> tuple[Entry, ...]:
        position = offset - self.start_offset
        return tuple(self.entries[position : position + count_max])

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def truncate(self, end_offset: int) -> None:
        assert end_offset >= self.start_offset
        del self.entries[end_offset - self.start_offset :]
        self.durable_end_offset = min(self.durable_end_offset, end_offset)
        self.truncations += 1

    def lose_unsynced(self, end_offset: int) -> None:
        """A crash: what was written since the last sync is gone from here on."""
        self.truncate(max(end_offset, self.durable_end_offset))
        self.durable_end_offset = self.end_offset

    def take_snapshot(self, end_offset: int, quorum: QuorumDescription) -> None:
        """Of what is committed; the log before it is given up."""
        before = self.snapshots[self.latest_snapshot].entries if self.latest_snapshot is not None else ()
        entries = before + self.read(self.start_offset, end_offset - self.start_offset)
        snapshot_id = SnapshotId(end_offset, entries[-1].epoch)
        self.snapshots = {snapshot_id: Snapshot(entries, quorum)}
        del self.entries[: end_offset - self.start_offset]
        self.start_offset = end_offset
        self.durable_end_offset = max(self.durable_end_offset, end_offset)

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self.snapshots = {snapshot_id: snapshot}
        self.entries = []
        self.start_offset = self.durable_end_offset = snapshot_id.end_offset
        self.truncations += 1
