"""The names of snapshot files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
"""Of a snapshot that is being written; a crash leaves it behind."""
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
"""Beside the partitions: the records with which the first leader begins the log."""


class SnapshotId(NamedTuple):
    """It holds everything before the end offset; the epoch is that of the last record in it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """None for files that are not snapshots."""
    stem = name.removesuffix(SUFFIX)
    offset, dash, epoch = stem.partition("-")
    if stem == name or not dash or len(offset) != 20 or not (offset + epoch).isdigit():
        return None
    return SnapshotId(int(offset), int(epoch))


def snapshots_in(names: Iterable[str]) -> list[SnapshotId]:
    """The snapshots among the names of a directory, the oldest first."""
    return sorted(found for name in names if (found := parse_snapshot_name(name)) is not None)
