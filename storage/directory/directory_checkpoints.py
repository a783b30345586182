"""The offset checkpoints of a log directory: as the previous process left them, and as this one writes them.

Each file holds one offset for each partition. A partition may be deleted and created again under the same name, or
moved away and back, between two checkpoints: then the file still holds the offsets of the former log. They must not be
applied to the new one, not even after a crash. So the directory of a new log gets a mark, which stays there until every
file that mentioned the former log has been written again.
"""

from __future__ import annotations

from moldau.storage.checkpoints.text_checkpoint import (
    CLEANER_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    Offsets,
    TopicPartition,
    encode_offsets,
    read_offsets,
)
from moldau.storage.files.log_paths import LOG_SUFFIX, partition_directory_name
from moldau.storage.files.port import FileSystem, write_atomically
from moldau.storage.log.recovery import Report
from moldau.storage.log_config import INT64_MAX

RECREATED = ".moldau-new"
"""The marker file in the directory of a log that replaced another log of the same name."""

StaleFiles = set[str]
"""The checkpoint files that may still hold offsets of the former log of a partition."""


class CheckpointWork:
    """Checkpoint files to be written in an executor thread."""

    __slots__ = ("_directory", "_fs", "checked", "files", "stale")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        files: dict[str, Offsets],
        checked: set[str],
        stale: dict[TopicPartition, StaleFiles],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.files = files
        """The new content of each file.

        It is encoded in the thread, because with a thousand partitions that takes milliseconds.
        """
        self.checked = checked
        """The files that are up to date after the work: those that it writes, and those that did not change."""
        self.stale = stale
        """The recreated logs at the time of this checkpoint: none of the checked files is stale for them any more."""

    def __bool__(self) -> bool:
        return bool(self.files)

    def run(self) -> None:
        """Write the files and sync them. Raises OSError: the directory has failed then."""
        for name, offsets in self.files.items():
            write_atomically(self._fs, f"{self._directory}/{name}", encode_offsets(offsets))


class DirectoryCheckpoints:
    """The four checkpoint files. The offsets in the attributes are those that the previous process left."""

    __slots__ = (
        "_fs",
        "_mentioned",
        "_path",
        "_recreated",
        "_unreadable",
        "_written",
        "cleaned_ends",
        "high_watermarks",
        "log_starts",
        "recovery_points",
    )

    def __init__(self, fs: FileSystem, path: str, report: Report) -> None:
        """Read the files. Raises OSError."""
        self._fs = fs
        self._path = path
        self._unreadable: set[str] = set()
        """The files of which something could not be read."""
        self._written: dict[str, Offsets] = {}
        """What this process has written, by file."""
        self._mentioned: dict[str, set[TopicPartition]] = {}
        """The partitions that each file may hold: as it was read or last written, and as it is being written."""
        self._recreated: dict[TopicPartition, StaleFiles] = {}
        self.recovery_points = self._read(RECOVERY_POINTS, report)
        self.log_starts = self._read(LOG_STARTS, report)
        self.cleaned_ends = self._read(CLEANER_POINTS, report)
        self.high_watermarks = self._read(HIGH_WATERMARKS, report)

    def _read(self, name: str, report: Report) -> Offsets:
        """Read a file. A damaged file counts as missing, and an offset that no log can have as well."""
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
        offsets = {key: offset for key, offset in offsets.items() if 0 <= offset <= INT64_MAX}
        self._mentioned[name] = {*offsets}
        return offsets

    @property
    def has_all_recovery_points(self) -> bool:
        """Whether the recovery points are those that the previous process wrote."""
        return RECOVERY_POINTS not in self._unreadable

    def lower_high_watermarks(self) -> None:
        """Lower each high watermark to the recovery point after a loss of power. Raises OSError.

        A truncation that was not synced is undone by a loss of power. The old bytes are back where other records were
        committed meanwhile, and the high watermark would show them to consumers. Written at once: the next process may
        start in the same boot, and would trust the file.

        DIVERGES: Apache Kafka serves such records to consumers of this replica until its leader has it truncated.
        """
        points = self.recovery_points
        synced = {key: min(known, points.get(key, 0)) for key, known in self.high_watermarks.items()}
        if synced != self.high_watermarks:
            write_atomically(self._fs, f"{self._path}/{HIGH_WATERMARKS}", encode_offsets(synced))
            self.high_watermarks = synced

    def forget_former_log(self, key: TopicPartition, path: str) -> None:
        """Drop the offsets of a partition's former log, before its new log is opened or created.

        The mark is made before the files of the log, so that it exists whenever a loss of power leaves any of them.
        Raises OSError.
        """
        names = self._fs.list_directory(path) if self._fs.exists(path) else []
        if RECREATED not in names:
            is_mentioned = any(key in mentioned for mentioned in self._mentioned.values())
            if not is_mentioned or any(name.endswith(LOG_SUFFIX) for name in names):
                return
            self._fs.make_directories(path)
            self._fs.open(f"{path}/{RECREATED}", create=True).close()
        for offsets in (self.recovery_points, self.log_starts, self.cleaned_ends, self.high_watermarks):
            offsets.pop(key, None)
        self._recreated[key] = {name for name, mentioned in self._mentioned.items() if key in mentioned}

    def log_removed(self, key: TopicPartition) -> None:
        """The log of a partition was removed from this directory, and its marker file with it."""
        self._recreated.pop(key, None)

    def work(
        self, starts: Offsets, points: Offsets, cleaned_ends: Offsets, high_watermarks: Offsets | None
    ) -> CheckpointWork:
        """The files that have to be written because an offset in them changed; no file where none did.

        Without high watermarks their file keeps its contents, except for former logs, which are removed: as long as one
        file mentions a former log, a crash loses the offsets of the new log in the others.
        """
        # Log start offsets are written first: batches before a log start offset may be missing, although the recovery
        # point says that they were flushed.
        files = {LOG_STARTS: starts, RECOVERY_POINTS: points}
        former = {key for key, stale in self._recreated.items() if HIGH_WATERMARKS in stale}
        if high_watermarks is None and former:
            known = self._written.get(HIGH_WATERMARKS, self.high_watermarks)
            high_watermarks = {key: offset for key, offset in known.items() if key not in former}
        if high_watermarks is not None:
            files[HIGH_WATERMARKS] = high_watermarks
        if cleaned_ends or self._mentioned[CLEANER_POINTS]:
            files[CLEANER_POINTS] = cleaned_ends
        changed = {name: offsets for name, offsets in files.items() if self._written.get(name) != offsets}
        for name, offsets in changed.items():
            self._mentioned[name] |= offsets.keys()
        return CheckpointWork(self._fs, self._path, changed, {*files}, dict(self._recreated))

    def written(self, work: CheckpointWork) -> list[TopicPartition]:
        """Note the contents of the written files, and remove the marks that are not needed any more.

        Returns the partitions whose marks are removed, for which the caller has to sync the directory. Raises OSError.
        """
        unmarked: list[TopicPartition] = []
        self._written |= work.files
        self._mentioned |= {name: {*offsets} for name, offsets in work.files.items()}
        for key, stale in work.stale.items():
            stale -= work.checked
            if not stale and self._recreated.get(key) is stale:
                del self._recreated[key]
                mark = f"{self._path}/{partition_directory_name(*key)}/{RECREATED}"
                if self._fs.exists(mark):
                    self._fs.unlink(mark)
                    unmarked.append(key)
        return unmarked
