"""One log.dir: its lock, its partitions, its checkpoints.

Opening and closing go through these steps; a crash at any of them leaves the next start to recover.

    open    lock, read and remove .kafka_cleanshutdown, read the checkpoints
    load    each partition's directory, believed after a clean shutdown and recovered after a crash
    serve   create, delete (rename at once, remove later), write checkpoints now and then
    close   write every log out, write the checkpoints, write .kafka_cleanshutdown, unlock

An error of the disk in one place is believed of the whole directory (`fail`): it is offline until the next start, which
recovers it. Nothing is written there any more, and no sync is tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import NamedTuple

from storage.checkpoints.clean_shutdown import read_clean_shutdown, remove_clean_shutdown, write_clean_shutdown
from storage.checkpoints.last_life import Life, forget_life, read_life, write_life
from storage.checkpoints.offset_checkpoint import (
    CLEANER_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Offsets,
    TopicPartition,
    encode_offsets,
    read_offsets,
)
from storage.checkpoints.partition_metadata import CorruptPartitionMetadata
from storage.checkpoints.text_checkpoint import CorruptCheckpoint
from storage.files.disk_errors import PASSING
from storage.files.port import FileLock, FileSystem, write_atomically
from storage.log.damaged_log import Damage, find_damage, set_all_aside, set_aside_from
from storage.log.log import Log
from storage.log.log_config import LogConfig
from storage.log.log_paths import (
    DELETE_SUFFIX,
    LOG_SUFFIX,
    STRAY_SUFFIX,
    PartitionDirectory,
    parse_partition_directory,
    partition_directory_name,
    suffixed_directory_name,
)
from storage.log.recovery import CorruptLog, Report
from storage.producers.producer_state import PRODUCER_EXPIRATION_MS

LOCK = ".lock"
METADATA_TOPIC = "__cluster_metadata"
"""Its directory lies among the others and belongs to the quorum."""
NEW = ".moldau-new"
"""In the directory of a log that took the place of another one: what the checkpoints say may be of that one."""

New = set[str]
"""Of such a log: the checkpoints that may still speak of the other one."""


class CheckpointWork:
    """Checkpoint files to be written: the blocking half, for a thread."""

    __slots__ = ("_directory", "_fs", "checked", "files", "new")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        files: dict[str, Offsets],
        checked: set[str],
        new: dict[TopicPartition, New],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self.files = files
        """By name, what they will hold. Encoded in the thread: with a thousand partitions that takes milliseconds."""
        self.checked = checked
        """Files that will be right: these, and those that are."""
        self.new = new
        """Logs of which nothing wrong will be said in those any more."""

    def __bool__(self) -> bool:
        return bool(self.files)

    def run(self) -> None:
        """Raises OSError: the directory is then offline."""
        for name, offsets in self.files.items():
            write_atomically(self._fs, f"{self._directory}/{name}", encode_offsets(offsets))


class Kept(NamedTuple):
    """What the checkpoints go on saying of a log that is damaged and not served."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int


class Repaired(NamedTuple):
    """A log without what was damaged: whole as far as it goes, which may be nowhere."""

    log: Log
    damage: Damage | None
    """None where nothing is wrong with it any more."""
    aside: str
    """Where the rest lies."""


def make_durable_directory(fs: FileSystem, path: str) -> None:
    """Create a directory and its parents where missing, so that a crash does not take them back."""
    missing = []
    while path and not fs.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for created in reversed(missing):
        fs.make_directories(created)
        fs.sync_directory(created.rpartition("/")[0] or "/")


class LogDirectory:
    __slots__ = (
        "_boot_id",
        "_checkpointed",
        "_cleaned_ends",
        "_last_life",
        "_lock",
        "_log_starts",
        "_new",
        "_recovery_points",
        "_told",
        "clean_broker_epoch",
        "damaged",
        "failure",
        "fs",
        "high_watermarks",
        "logs",
        "on_damage",
        "on_failure",
        "on_shortage",
        "path",
    )

    def __init__(self, fs: FileSystem, path: str, lock: FileLock, report: Report, boot_id: str) -> None:
        self.fs = fs
        self.path = path
        self._lock = lock
        self._boot_id = boot_id
        self.logs: dict[TopicPartition, Log] = {}
        self.damaged: dict[TopicPartition, Kept] = {}
        """Logs that lie here and are not served, because a part of them is not what was written."""
        self.failure: OSError | None = None
        """Why the directory is offline."""
        self.on_damage: Callable[[Log, str], None] | None = None
        """Told of a log that turns out to be damaged, in the midst of a read."""
        self.on_failure: Callable[[LogDirectory], None] | None = None
        """Told once, in the midst of whatever the disk refused: it may take note, and act later."""
        self.on_shortage: Callable[[OSError], None] | None = None
        """Told of each refusal that may pass."""
        self._checkpointed: dict[str, Offsets] = {}
        """What this process has written, by file."""
        self._told: dict[str, set[TopicPartition]] = {}
        """Of whom the files may speak: as they were read or last written, and as they are being written."""
        self._new: dict[TopicPartition, New] = {}
        self._recovery_points = self._read_checkpoint(RECOVERY_POINTS, report)
        self._log_starts = self._read_checkpoint(LOG_STARTS, report)
        self._cleaned_ends = self._read_checkpoint(CLEANER_POINTS, report)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARKS, report)
        """As they were at the last checkpoint of the process before this one, as far as that can be believed."""
        self.clean_broker_epoch = read_clean_shutdown(fs, path)
        """The broker epoch of a clean shutdown (-1 unknown), None after a crash."""
        remove_clean_shutdown(fs, path)
        self._last_life = read_life(fs, path)
        if self._may_have_lost:
            self._distrust_high_watermarks()

    @classmethod
    def open(cls, fs: FileSystem, path: str, report: Report, boot_id: str = "") -> LogDirectory:
        """Make the directory where missing, and lock it. BlockingIOError: another process serves it.

        The id tells this boot of the machine from others; where it is empty, every crash is taken for a loss of power.
        """
        make_durable_directory(fs, path)
        lock = fs.lock(f"{path}/{LOCK}")
        try:
            return cls(fs, path, lock, report, boot_id)
        except BaseException:
            lock.release()
            raise

    @property
    def was_clean(self) -> bool:
        return self.clean_broker_epoch is not None

    @property
    def _may_have_lost(self) -> bool:
        """Whether what the process before this one wrote, and did not sync, may be gone."""
        life = self._last_life
        is_same_boot = life is not None and self._boot_id != "" and life.boot_id == self._boot_id
        return not self.was_clean and not is_same_boot

    def _distrust_high_watermarks(self) -> None:
        """After a loss of power no log is known to be committed further than it was synced. Raises OSError.

        A truncation that was not synced is undone: the old bytes stand again where others were committed meanwhile.
        Durable at once, since the process after this one may be told by its boot that nothing was lost.
        DIVERGES: Apache Kafka shows such records to whoever reads from this replica before its leader truncates it.
        """
        points = self._recovery_points
        synced = {key: min(known, points.get(key, 0)) for key, known in self.high_watermarks.items()}
        if synced != self.high_watermarks:
            write_atomically(self.fs, f"{self.path}/{HIGH_WATERMARKS}", encode_offsets(synced))
            self.high_watermarks = synced

    @property
    def kept_epoch(self) -> int | None:
        """The broker epoch in which the process before this one ended and lost nothing; None where it may have.

        DIVERGES: Apache Kafka takes every process that was killed for one that lost what it had not synced.
        """
        if self.damaged or self._may_have_lost:
            return None
        if self.was_clean or self._last_life is None:
            return self.clean_broker_epoch
        return self._last_life.broker_epoch

    def serve_under(self, broker_epoch: int) -> None:
        """Note the epoch for the process after this one. Raises OSError: it will know nothing then."""
        write_life(self.fs, self.path, Life(self._boot_id, broker_epoch))

    def forget_life(self) -> None:
        """The process after this one is not to say that nothing was lost. A disk that refuses this too, and works again
        before the machine is restarted, would have it say so: unless it has other directories, which do not."""
        forget_life(self.fs, self.path)

    # Loading

    def partitions(self, suffix: str = "") -> list[PartitionDirectory]:
        """The partition directories with a suffix (none: the live ones), the metadata log left out."""
        found = []
        for name in self.fs.list_directory(self.path):
            parsed = parse_partition_directory(name)
            if parsed is not None and parsed.suffix == suffix and parsed.topic != METADATA_TOPIC:
                found.append(parsed)
        return found

    def directories_to_remove(self) -> list[str]:
        """Partitions whose deletion was not finished: to be removed off the loop."""
        names = self.fs.list_directory(self.path)
        parsed = [(name, parse_partition_directory(name)) for name in names]
        return [f"{self.path}/{name}" for name, found in parsed if found and found.suffix == DELETE_SUFFIX]

    def load(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        now_ms: int,
        report: Report,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
    ) -> Log:
        """Open the log of a partition, existing or new. Blocks for as long as recovery takes; may run in a thread.

        Raises `CorruptLog` and OSError.
        """
        key = (topic, partition)
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        self._begin_anew(key, path)
        log = Log.open(
            self.fs,
            path,
            config,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            clean_shutdown=self.was_clean,
            now_ms=now_ms,
            report=report,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_end_offset=self._cleaned_ends.get(key, 0),
        )
        if log.unflushed_count >= config.flush_messages:
            log.flush(now_ms)  # what a crash left to the page cache is read before anything else is written
        self.adopt(log)
        return log

    def _begin_anew(self, key: TopicPartition, path: str) -> None:
        """Forget what the checkpoints say, where that may be of a log that was here before this one.

        Until they are written again a mark in the new log's directory says so. It is made before the log's files: what
        a loss of power leaves of those has it. Raises OSError.
        """
        names = self.fs.list_directory(path) if self.fs.exists(path) else []
        if NEW not in names:
            is_told_of = any(key in told for told in self._told.values())
            if not is_told_of or any(name.endswith(LOG_SUFFIX) for name in names):
                return
            self.fs.make_directories(path)
            self.fs.open(f"{path}/{NEW}", create=True).close()
        for known in (self._recovery_points, self._log_starts, self._cleaned_ends, self.high_watermarks):
            known.pop(key, None)
        self._new[key] = {name for name, told in self._told.items() if key in told}

    # Damage

    def cannot_load(self, topic: str, partition: int) -> None:
        """The log of a partition is damaged: leave it as it is, and go on saying what is known of it."""
        key = (topic, partition)
        self.damaged[key] = Kept(
            self._recovery_points.get(key, 0), self._log_starts.get(key, 0), self.high_watermarks.get(key, 0)
        )

    def find_damage(self, topic: str, partition: int) -> Damage | None:
        """Read all of a log. Blocks for long, and may run in a thread. Raises OSError."""
        return find_damage(self.fs, f"{self.path}/{partition_directory_name(topic, partition)}")

    def fence(self, log: Log, high_watermark: int) -> None:
        """Stop serving a log that is damaged; its files stay as they are."""
        key = (log.topic, log.partition)
        self.damaged[key] = Kept(log.recovery_point, log.log_start_offset, high_watermark)
        del self.logs[key]
        log.on_failure = log.on_damage = None
        log.close(0, clean=False)

    def repair(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        now_ms: int,
        report: Report,
        unique: str,
    ) -> Repaired:
        """Set aside everything from the segment of the first bad batch on, and open what is left.

        Only when the controller counts on this replica no more. Blocks for as long as it takes to read the log; may run
        in a thread. The log belongs to the directory once it is adopted. Raises OSError.
        """
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        aside = f"{self.path}/{suffixed_directory_name(topic, partition, unique, STRAY_SUFFIX)}"
        kept = self.damaged[topic, partition]
        damage = find_damage(self.fs, path)
        recovery_point = kept.recovery_point
        if damage is not None:
            make_durable_directory(self.fs, aside)
            set_aside_from(self.fs, path, aside, damage.segment_base_offset)
            recovery_point = min(recovery_point, damage.segment_base_offset)
        kept = kept._replace(recovery_point=recovery_point)
        try:
            return Repaired(self._reopened(path, kept, config, now_ms, report), damage, aside)
        except (CorruptLog, CorruptPartitionMetadata) as error:
            make_durable_directory(self.fs, aside)
            set_all_aside(self.fs, path, aside)
            kept = kept._replace(recovery_point=0)
            return Repaired(self._reopened(path, kept, config, now_ms, report), damage or Damage(0, str(error)), aside)

    def _reopened(self, path: str, kept: Kept, config: LogConfig, now_ms: int, report: Report) -> Log:
        log = Log.open(
            self.fs,
            path,
            config,
            recovery_point=kept.recovery_point,
            log_start_offset=kept.log_start_offset,
            now_ms=now_ms,
            report=report,
        )
        if log.unflushed_count >= config.flush_messages:
            log.flush(now_ms)
        return log

    def remove_damaged(self, topic: str, partition: int, unique: str, suffix: str = DELETE_SUFFIX) -> str:
        """Rename the directory of a damaged log that nobody wants any more; its new path. Raises OSError."""
        del self.damaged[topic, partition]
        self._new.pop((topic, partition), None)
        new = f"{self.path}/{suffixed_directory_name(topic, partition, unique, suffix)}"
        self.fs.rename(f"{self.path}/{partition_directory_name(topic, partition)}", new)
        return new

    # Serving

    def fail(self, error: OSError) -> None:
        """The disk refused something: the directory is offline from here on."""
        if self.failure is not None:
            return
        self.failure = error
        self.forget_life()
        for log in self.logs.values():
            log.fail(error)
        if self.on_failure is not None:
            self.on_failure(self)

    def create(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, now_ms: int) -> Log:
        """A new, empty log. Raises OSError, and leaves nothing of it behind."""
        try:
            log = self.make(topic, partition, topic_id, config, now_ms)
        except OSError as error:
            self.refused(error)
            raise
        self.adopt(log)
        return log

    def make(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, now_ms: int) -> Log:
        """The part of `create` that may run in a thread. The log belongs to the directory once it is adopted; what the
        disk refuses is for the caller to tell."""
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        log = None
        try:
            self._begin_anew((topic, partition), path)
            log = Log.open(self.fs, path, config, clean_shutdown=self.was_clean, now_ms=now_ms)
            if topic_id is not None:
                log.assign_topic_id(topic_id)
        except OSError:
            if log is not None:
                log.close(0, clean=False)
            self._undo(path)
            raise
        return log

    def adopt(self, log: Log) -> None:
        """Take a log that was opened here among those that are served."""
        self.logs[log.topic, log.partition] = log
        self.damaged.pop((log.topic, log.partition), None)
        log.on_shortage = self.on_shortage
        log.on_damage = self.on_damage
        if self.failure is not None:
            log.fail(self.failure)  # the directory went offline while the log was made
        log.on_failure = self.fail

    def refused(self, error: OSError) -> None:
        """The disk refused, perhaps for the moment only."""
        if error.errno not in PASSING:
            self.fail(error)
        elif self.on_shortage is not None:
            self.on_shortage(error)

    def _undo(self, path: str) -> None:
        """A half-made directory would be taken for the partition at the next start, when it may be elsewhere."""
        try:
            if self.fs.exists(path):
                self.fs.remove_tree(path)
        except OSError as error:
            raise OSError(errno.EIO, f"{path} is half made and cannot be removed: {error}") from error

    def delete(self, topic: str, partition: int, unique: str) -> str:
        """Take a log away: rename its directory at once; the path, to be removed off the loop later. Raises OSError."""
        return self._take_away(topic, partition, unique, DELETE_SUFFIX)

    def set_aside(self, topic: str, partition: int, unique: str, suffix: str) -> str:
        """Rename a log's directory so that it is kept and not served (`-stray`); its new path. Raises OSError."""
        return self._take_away(topic, partition, unique, suffix)

    def _take_away(self, topic: str, partition: int, unique: str, suffix: str) -> str:
        old, new = self.let_go(topic, partition, unique, suffix)
        self.fs.rename(old, new)
        return new

    def let_go(self, topic: str, partition: int, unique: str, suffix: str = DELETE_SUFFIX) -> tuple[str, str]:
        """Close a log; its path, and the one to which it has to be renamed."""
        log = self.logs.pop((topic, partition))
        self._new.pop((topic, partition), None)
        log.on_failure = log.on_damage = None  # who still reads it finds its files gone: that is no fault of the disk
        log.close(0, clean=False)
        return log.directory, f"{self.path}/{suffixed_directory_name(topic, partition, unique, suffix)}"

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> CheckpointWork:
        """The checkpoints that are to be written, which are none where nothing moved: run the work off the loop, then
        call `checkpointed`. Without high watermarks theirs stays as it is."""
        points = {key: log.recovery_point for key, log in self.logs.items()}
        points |= {key: kept.recovery_point for key, kept in self.damaged.items()}
        # Starts first: what lies before them need not be there, though it was flushed.
        files = {LOG_STARTS: self._hidden_starts(), RECOVERY_POINTS: points}
        if high_watermarks is not None:
            damaged = {key: kept.high_watermark for key, kept in self.damaged.items()}
            files[HIGH_WATERMARKS] = {**high_watermarks, **damaged}
        if self._told[CLEANER_POINTS]:
            files[CLEANER_POINTS] = dict(self._cleaned_ends)
        changed = {name: offsets for name, offsets in files.items() if self._checkpointed.get(name) != offsets}
        for name, offsets in changed.items():
            self._told[name] |= offsets.keys()
        return CheckpointWork(self.fs, self.path, changed, {*files}, dict(self._new))

    def checkpointed(self, work: CheckpointWork) -> None:
        """The work is done: what it wrote need not be written again. Raises OSError."""
        self._checkpointed |= work.files
        self._told |= {name: {*offsets} for name, offsets in work.files.items()}
        for key, new in work.new.items():
            new -= work.checked
            if not new and self._new.get(key) is new:
                del self._new[key]
                mark = f"{self.path}/{partition_directory_name(*key)}/{NEW}"
                if self.fs.exists(mark):
                    self.fs.unlink(mark)

    def _hidden_starts(self) -> Offsets:
        """Only where the start of a log is not the start of its first segment."""
        hidden = {
            key: log.log_start_offset
            for key, log in self.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        return hidden | {key: kept.log_start_offset for key, kept in self.damaged.items() if kept.log_start_offset}

    def abandon(self) -> None:
        """After a failure: let go of all files, so that the disk can be taken away."""
        for log in self.logs.values():
            log.close(0, clean=False)
        self._lock.release()

    def close(
        self, now_ms: int, broker_epoch: int, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> bool:
        """Write everything out and unlock; whether the next start may believe the files. Blocks for the syncs."""
        self.on_failure = None
        try:
            if self.failure is not None:
                raise self.failure
            for log in self.logs.values():
                log.close(now_ms, clean=True, syncs_parent=False)
            work = self.checkpoint(high_watermarks)
            work.run()
            self.checkpointed(work)
            is_clean = not self.damaged  # nothing was written out for those: the next start is to look at them
            if is_clean:
                write_clean_shutdown(self.fs, self.path, broker_epoch)
        except OSError:
            is_clean = False
            for log in self.logs.values():
                log.close(now_ms, clean=False)
        # DIVERGES: Kafka removes the .lock file when it stops; a lock file that goes away can let two processes in.
        self._lock.release()
        return is_clean

    def _read_checkpoint(self, name: str, report: Report) -> Offsets:
        """A damaged checkpoint is as none: recovery points of 0 make recovery longer, not wrong."""
        try:
            offsets = read_offsets(self.fs, self.path, name)
        except CorruptCheckpoint as error:
            report(f"{error}: not used")
            offsets = {}
        self._told[name] = {*offsets}
        return offsets
