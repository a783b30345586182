"""The offset checkpoints of a log directory: as the previous process left them, and as this process writes them.

Each file holds one offset for each partition. Between two checkpoints a partition may be deleted and created again
under the same name, or be moved away and back. The file then still has the offsets of the former log, which must not be
applied to the new log, not even after a crash. So the directory of a new log has a marker file, until every checkpoint
that mentioned the former log has been written again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.checkpoints.text_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    OffsetsByPartition,
    TopicPartition,
    encode_offsets,
    read_offsets,
)
from moldau.storage.files.log_paths import LOG_SUFFIX, partition_directory_name
from moldau.storage.files.port import FileSystem, write_atomically
from moldau.storage.log.recovery import RecoveryReport
from moldau.storage.log_config import INT64_MAX

RECREATED_MARKER_FILE = ".moldau-new"
"""The marker file in the directory of a log that replaced another log of the same name."""

StaleFiles = set[str]
"""The names of the checkpoint files that may still hold offsets of the former log of a partition."""


class OffsetCheckpoint:
    """A checkpoint file in memory: the offsets to write, and the partitions that the file on disk may mention.

    Offsets stay in memory between writes, and changes are counted, so a checkpoint costs time for each change and not
    for each partition.
    """

    __slots__ = ("_changes", "_mentioned", "_written_changes", "offsets")

    def __init__(self, mentioned: OffsetsByPartition, *, is_needed: bool = True) -> None:
        """`mentioned`: the offsets read from the file. `is_needed`: write the file even without offsets."""
        self.offsets: OffsetsByPartition = {}
        self._mentioned: tuple[Collection[TopicPartition], ...] = ({*mentioned},)
        """The partitions in the file as it was read or last written, then those in each content whose write has
        begun.
        """
        self._changes = 0
        self._written_changes = -1 if mentioned or is_needed else 0

    def set_offset(self, key: TopicPartition, offset: int | None) -> None:
        """Set the offset of a partition for the next write; None removes the partition."""
        if self.offsets.get(key) != offset:
            self._changes += 1
            if offset is None:
                del self.offsets[key]
            else:
                self.offsets[key] = offset

    def replace(self, offsets: OffsetsByPartition, *, is_written: bool = False) -> None:
        """Replace all offsets. `is_written`: the file already holds exactly these offsets."""
        self.offsets = offsets
        self._changes += 1
        if is_written:
            self._written_changes = self._changes

    def may_mention(self, key: TopicPartition) -> bool:
        """Whether the file on disk may have an offset of the partition, perhaps from a former log of the same name."""
        return any(key in mentioned for mentioned in self._mentioned)

    def begin_write(self) -> CheckpointWrite | None:
        """Begin a write. Returns the content to write; None if the file already holds the current offsets."""
        if self._changes == self._written_changes:
            return None
        content = dict(self.offsets)
        if len(self._mentioned) > 1:  # A write has failed: the file may hold any of the contents.
            self._mentioned = (set().union(*self._mentioned),)
        self._mentioned = (*self._mentioned, content.keys())
        return CheckpointWrite(content, self._changes)

    def finish_write(self, write: CheckpointWrite) -> None:
        """Mark the content of `write` as written."""
        self._mentioned = (write.offsets.keys(),)
        self._written_changes = write.changes


class CheckpointWrite(NamedTuple):
    """The new content of a checkpoint file, and the number of changes up to it."""

    offsets: OffsetsByPartition
    changes: int
    """The number of changes that the content includes."""


class CheckpointWork:
    """The checkpoint files that an executor thread writes."""

    __slots__ = ("_directory", "_fs", "files", "stale_files_by_log")

    def __init__(
        self, fs: FileSystem, directory: str, files: dict[str, CheckpointWrite], stale: dict[TopicPartition, StaleFiles]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.files = files
        """The new content of each checkpoint file, by the name of the file.

        It is encoded in the thread, because with a thousand partitions that takes milliseconds.
        """
        self.stale_files_by_log = stale
        """For each recreated log, the files that may still mention its former log. This checkpoint rewrites them."""

    def __bool__(self) -> bool:
        return bool(self.files)

    def write_files(self) -> None:
        """Write the checkpoint files and sync them. Raises OSError, after which the log directory has failed."""
        for name, write in self.files.items():
            write_atomically(self._fs, f"{self._directory}/{name}", encode_offsets(write.offsets))


class DirectoryCheckpoints:
    """The four checkpoint files of a log directory. The public attributes are the offsets that the previous process
    wrote."""

    __slots__ = (
        "_files",
        "_fs",
        "_has_high_watermarks",
        "_path",
        "_recreated",
        "_unreadable",
        "cleaner_offsets",
        "high_watermarks",
        "log_start_offsets",
        "recovery_points",
    )

    def __init__(self, fs: FileSystem, path: str, report: RecoveryReport) -> None:
        """Read the checkpoint files. Raises OSError. A file that is damaged is reported and counts as missing."""
        self._fs = fs
        self._path = path
        self._unreadable: set[str] = set()
        """The names of the files of which something could not be read."""
        self._recreated: dict[TopicPartition, StaleFiles] = {}
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT, report)
        self.log_start_offsets = self._read(LOG_START_CHECKPOINT, report)
        self.cleaner_offsets = self._read(CLEANER_OFFSET_CHECKPOINT, report)
        self.high_watermarks = self._read(HIGH_WATERMARK_CHECKPOINT, report)
        # Log start offsets are written first: batches before a log start offset may be missing, although the recovery
        # point says that they were flushed.
        self._files = {
            LOG_START_CHECKPOINT: OffsetCheckpoint(self.log_start_offsets),
            RECOVERY_POINT_CHECKPOINT: OffsetCheckpoint(self.recovery_points),
            HIGH_WATERMARK_CHECKPOINT: OffsetCheckpoint(self.high_watermarks),
            CLEANER_OFFSET_CHECKPOINT: OffsetCheckpoint(self.cleaner_offsets, is_needed=False),
        }
        self._has_high_watermarks = False
        """Whether this process has noted high watermarks. Until then the file keeps the high watermarks of the previous
        process."""
        self._files[HIGH_WATERMARK_CHECKPOINT].replace(dict(self.high_watermarks), is_written=True)

    def _read(self, name: str, report: RecoveryReport) -> OffsetsByPartition:
        """Read one checkpoint file. A damaged file counts as missing. An offset that no log can have counts as missing,
        too."""
        try:
            offsets = read_offsets(self._fs, self._path, name)
        except CorruptCheckpoint as error:
            report(f"{error}: the file is ignored")
            self._unreadable.add(name)
            offsets = {}
        for (topic, partition), offset in offsets.items():
            if not 0 <= offset <= INT64_MAX:
                report(f"{self._path}/{name}: offset {offset} of {topic}-{partition} is ignored, because no log has it")
                self._unreadable.add(name)
        return {key: offset for key, offset in offsets.items() if 0 <= offset <= INT64_MAX}

    @property
    def has_all_recovery_points(self) -> bool:
        """Whether the file with the recovery points was read without damage, so that no recovery point of the previous
        process is missing."""
        return RECOVERY_POINT_CHECKPOINT not in self._unreadable

    def lower_high_watermarks(self) -> None:
        """Lower each high watermark to the recovery point, after a loss of power. Raises OSError.

        A loss of power undoes a truncation that was not synced. The truncated records are then back, although other
        records may have been committed at their offsets, and an unchanged high watermark would show them to consumers.
        The file is written at once: the next process may start in the same boot, and would trust the file.

        DIVERGES: Apache Kafka serves such records to consumers of this replica until its leader has it truncated.
        """
        points = self.recovery_points
        synced = {key: min(known, points.get(key, 0)) for key, known in self.high_watermarks.items()}
        if synced != self.high_watermarks:
            write_atomically(self._fs, f"{self._path}/{HIGH_WATERMARK_CHECKPOINT}", encode_offsets(synced))
            self.high_watermarks = synced

    def forget_former_log(self, key: TopicPartition, path: str) -> None:
        """Drop the offsets of a partition's former log, before its new log in the directory `path` is opened or
        created.

        A marker file is created before any file of the log, so that a crash cannot leave the log without it. Raises
        OSError.
        """
        names = self._fs.list_directory(path) if self._fs.exists(path) else []
        if RECREATED_MARKER_FILE not in names:
            is_mentioned = any(file.may_mention(key) for file in self._files.values())
            if not is_mentioned or any(name.endswith(LOG_SUFFIX) for name in names):
                return
            self._fs.make_directories(path)
            self._fs.open(f"{path}/{RECREATED_MARKER_FILE}", create=True).close()
        for offsets in (self.recovery_points, self.log_start_offsets, self.cleaner_offsets, self.high_watermarks):
            offsets.pop(key, None)
        self._recreated[key] = {name for name, file in self._files.items() if file.may_mention(key)}

    def remove_log(self, key: TopicPartition) -> None:
        """Drop the offsets of a log that was removed together with its marker file."""
        self._recreated.pop(key, None)
        for file in self._files.values():
            file.set_offset(key, None)

    def set_log_offsets(
        self, key: TopicPartition, log_start: int | None, recovery_point: int, cleaned_end: int | None
    ) -> None:
        """Set the offsets of a log for the next checkpoint. If an offset is None, its file does not mention the log."""
        self._files[LOG_START_CHECKPOINT].set_offset(key, log_start)
        self._files[RECOVERY_POINT_CHECKPOINT].set_offset(key, recovery_point)
        self._files[CLEANER_OFFSET_CHECKPOINT].set_offset(key, cleaned_end)

    def set_high_watermark(self, key: TopicPartition, high_watermark: int | None) -> None:
        self._files[HIGH_WATERMARK_CHECKPOINT].set_offset(key, high_watermark)

    def drop_previous_high_watermarks(self, of_damaged: Callable[[], OffsetsByPartition]) -> None:
        """Drop the previous process's high watermarks, except those of damaged logs (`of_damaged`). Only the first call
        has an effect.
        """
        if not self._has_high_watermarks:
            self._has_high_watermarks = True
            self._files[HIGH_WATERMARK_CHECKPOINT].replace(of_damaged())

    def pending_work(self) -> CheckpointWork:
        """Collect the new contents of the checkpoint files in which an offset has changed, for an executor thread to
        write. The work is empty if there is no such file.

        Until this process has noted high watermarks, their file keeps the entries of the previous process. Entries of
        former logs are removed from it: while any file mentions a former log, a crash would lose the offsets of the new
        log in all files.
        """
        if not self._has_high_watermarks:
            for key in [key for key, stale in self._recreated.items() if HIGH_WATERMARK_CHECKPOINT in stale]:
                self.set_high_watermark(key, None)
        writes = {name: file.begin_write() for name, file in self._files.items()}
        changed = {name: write for name, write in writes.items() if write is not None}
        return CheckpointWork(self._fs, self._path, changed, dict(self._recreated))

    def finish_write(self, work: CheckpointWork) -> list[TopicPartition]:
        """Note that the files of `work` are written, and remove the marker files that are not needed any more.

        Returns the partitions whose marker files were removed, so that the caller syncs their directories. Raises
        OSError.
        """
        unmarked: list[TopicPartition] = []
        for name, write in work.files.items():
            self._files[name].finish_write(write)
        for key, stale in work.stale_files_by_log.items():
            stale.clear()
            if self._recreated.get(key) is stale:
                del self._recreated[key]
                mark = f"{self._path}/{partition_directory_name(*key)}/{RECREATED_MARKER_FILE}"
                if self._fs.exists(mark):
                    self._fs.unlink(mark)
                    unmarked.append(key)
        return unmarked
