"""The leader epochs of a log, each with the offset of its first batch; stored in leader-epoch-checkpoint.

A follower compares its epochs with the leader's to find the offset at which their logs diverge (KIP-101, KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint, format_checkpoint, parse_checkpoint
from moldau.storage.files.log_paths import LEADER_EPOCH_CHECKPOINT
from moldau.storage.files.port import FileSystem, write_atomically

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first batch."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset at which it ended (exclusive). Both are -1 if the log does not know the epoch."""

    epoch: int
    end_offset: int


UNDEFINED_END = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
_epoch = itemgetter(0)


class LeaderEpochs:
    """The leader epochs of one log, and the file that stores them. Epochs and start offsets both strictly increase.

    The broker writes the file soon after the first batch of an epoch and after each other change (`on_change`). Each
    flush of the log writes a change that is not written yet.

    DIVERGES: Kafka writes the file with a sync before it appends the first batch of a new epoch. Here an executor
    thread writes it moments later, so that a thousand partitions can change leaders without a thousand syncs on the
    event loop. Recovery reads the epochs past the recovery point from the batches.
    """

    __slots__ = ("_directory", "_fs", "_written_entries", "entries", "latest_epoch", "on_change")

    def __init__(self, fs: FileSystem, directory: str, entries: list[EpochStart]) -> None:
        self._fs = fs
        self._directory = directory
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH
        self._written_entries: list[EpochStart] | None = list(entries)
        self.on_change: Callable[[], None] | None = None
        """Called within each change of the entries; None while the log is not served."""

    @classmethod
    def load(cls, fs: FileSystem, directory: str) -> LeaderEpochs:
        """Read the leader-epoch-checkpoint of a log directory. A log without this file has no epochs. Raises OSError
        and `CorruptCheckpoint`."""
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        if not fs.exists(path):
            return cls(fs, directory, [])
        return cls(fs, directory, decode_epochs(fs.read(path), path))

    @property
    def path(self) -> str:
        return f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that starts at `start_offset`, unless it is the latest epoch already.

        Entries that contradict it, because their epoch or start offset is the same or later, are removed, as in Kafka.
        Only a log that was truncated, or recovered with an older checkpoint, has such entries.
        """
        if epoch < 0 or start_offset < 0 or epoch == self.latest_epoch:
            return  # Batches of magic 2 that no leader has appended yet have epoch -1.
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch that is at most `epoch`, with its end offset.

        An epoch ends at the start of the next one, the latest epoch at `log_end_offset`. For an epoch before the first
        known one, the result is `epoch` itself with the start offset of the first known one. The result is
        `UNDEFINED_END` if no epoch is known, or if `epoch` is later than the latest one.
        """
        if epoch == UNDEFINED_EPOCH or not self.entries or epoch > self.latest_epoch:
            return UNDEFINED_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        slot = bisect_right(self.entries, epoch, key=_epoch)
        next_start = self.entries[slot].start_offset
        return EpochEnd(self.entries[slot - 1].epoch if slot else epoch, next_start)

    def epoch_of(self, offset: int) -> int | None:
        """The leader epoch of the batch at an offset; None if the offset is before the start of the
        first known epoch."""
        slot = bisect_right(self.entries, offset, key=itemgetter(1))
        return self.entries[slot - 1].epoch if slot else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or past `end_offset`, to which the log is truncated."""
        if end_offset >= 0 and self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries = [entry for entry in self.entries if entry.start_offset < end_offset]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended at or before `start_offset`, the new start of the log. The epoch that contains
        `start_offset` begins there from now on."""
        slot = bisect_right(self.entries, start_offset, key=itemgetter(1))
        if slot and self.entries[0].start_offset < start_offset:
            self.entries = [EpochStart(self.entries[slot - 1].epoch, start_offset), *self.entries[slot:]]
            self._changed()

    def replace(self, entries: list[EpochStart]) -> None:
        """Replace all epochs by `entries`, the epochs of another log."""
        self.entries = entries
        self._changed()

    def insert_earlier(self, earlier: list[EpochStart]) -> None:
        """Insert `earlier`, the epochs of a part of the log that lies before the known one. Known epochs up to the last
        of `earlier` are replaced."""
        self.entries = [*earlier, *(entry for entry in self.entries if entry.epoch > earlier[-1].epoch)]
        self._changed()

    def clear(self) -> None:
        self.entries = []
        self._changed()

    def remove_file(self) -> None:
        """Remove all epochs and the checkpoint file; unlike `write`, this needs no free space on the disk. The next
        flush writes the file again, because a write in progress may put the old file back. Blocks for the sync. Raises
        OSError."""
        self.clear()
        if self._fs.exists(self.path):
            self._fs.unlink(self.path)
        self._fs.sync_directory(self._directory)

    def encode(self) -> bytes:
        """The content of the leader-epoch-checkpoint file for the current entries."""
        return format_checkpoint([f"{entry.epoch} {entry.start_offset}" for entry in self.entries])

    @property
    def is_dirty(self) -> bool:
        """Whether the checkpoint file has to be written, because its content differs from the entries or
        is not known."""
        return self.entries != self._written_entries

    def must_be_written(self, log_end_offset: int) -> bool:
        """Whether the checkpoint file must be written now. A new epoch is not written before its first batch, because a
        restart of the broker drops an epoch without batches. So leader changes of an idle log cause no writes."""
        entries = self.entries
        is_last_empty = bool(entries) and entries[-1].start_offset >= log_end_offset
        return self.is_dirty and not (is_last_empty and entries[:-1] == self._written_entries)

    def note_written(self) -> None:
        """Mark the current entries as being written to the checkpoint file."""
        self._written_entries = list(self.entries)

    def note_not_written(self) -> None:
        """Mark the checkpoint file as not written, because the write failed or was postponed."""
        self._written_entries = None

    def write(self) -> None:
        """Write the checkpoint file. Blocks for the sync. Raises OSError."""
        write_atomically(self._fs, self.path, self.encode())
        self.note_written()

    def _changed(self) -> None:
        self.latest_epoch = self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH
        if self.on_change is not None:
            self.on_change()


def decode_epochs(data: bytes, path: str) -> list[EpochStart]:
    """Decode the content of a leader-epoch-checkpoint file. Raises `CorruptCheckpoint`."""
    entries: list[EpochStart] = []
    for line in parse_checkpoint(data, path):
        fields = line.split(" ")
        if len(fields) != 2 or not all(field.isdecimal() for field in fields):
            raise CorruptCheckpoint(f"{path}: {line!r} is not an epoch and an offset")
        entries.append(EpochStart(int(fields[0]), int(fields[1])))
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in pairwise(entries)):
        raise CorruptCheckpoint(f"{path}: epochs and offsets must increase")
    return entries
