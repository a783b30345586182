"""The names of snapshot files and the ids in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files import log_paths

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
"""The suffix of a snapshot file that is not complete. A crash leaves such a file behind."""
BOOTSTRAP_CHECKPOINT: Final = log_paths.BOOTSTRAP_CHECKPOINT
"""The file with the records with which the first leader begins the log. It is in the metadata directory."""


class SnapshotId(NamedTuple):
    """The id of a snapshot: it contains every record before `end_offset`, and the last of them has the epoch
    `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Parse the name of a snapshot file; None for any other name."""
    stem = name.removesuffix(SUFFIX)
    offset, dash, epoch = stem.partition("-")
    if stem == name or not dash or len(offset) != 20 or not (offset + epoch).isdecimal():
        return None
    return SnapshotId(int(offset), int(epoch))


def snapshots_in(names: Iterable[str]) -> list[SnapshotId]:
    """The ids of the snapshots among the names of files in a directory, the oldest first."""
    return sorted(found for name in names if (found := parse_snapshot_name(name)) is not None)
