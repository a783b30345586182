"""One log.dir: the logs in it, and the steps in which it is opened, served and closed.

A crash at any step leaves a directory that the next start recovers:

    open    lock the directory, read the checkpoints, read and remove .kafka_cleanshutdown
    load    open each partition's log: trust it after a clean shutdown, recover it after a crash
    serve   create logs, delete logs (rename them at once, remove them later), write checkpoints
    close   flush every log, write the checkpoints, write .kafka_cleanshutdown, unlock the directory

An error of the disk in one log takes the whole directory offline (`take_offline`) until the next start, which recovers
it. Nothing is written there any more, and no failed sync is tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from functools import partial as bind
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.checkpoints.text_checkpoint import OffsetsByPartition, TopicPartition
from moldau.storage.directory.damaged_logs import CheckpointedOffsets, DamagedLogs
from moldau.storage.directory.directory_checkpoints import CheckpointWork, DirectoryCheckpoints
from moldau.storage.directory.previous_run import (
    PreviousRun,
    ServingEpoch,
    remove_serving_epoch,
    write_clean_shutdown,
    write_serving_epoch,
)
from moldau.storage.files.log_paths import (
    DELETE_SUFFIX,
    PartitionDirectory,
    parse_partition_directory,
    partition_directory_name,
    suffixed_directory_name,
)
from moldau.storage.files.port import TRANSIENT_ERRNOS, FileLock, FileSystem, make_durable_directory
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log, ignore_report
from moldau.storage.log.recovery import RecoveryProgress, RecoveryReport
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_state import PRODUCER_EXPIRATION_MS

LOCK_FILE = ".lock"
METADATA_TOPIC = "__cluster_metadata"
"""The topic of the metadata log. Its directory lies beside those of the partitions, but belongs to the Raft quorum."""


class DirectoryCallbacks(NamedTuple):
    """The callbacks of a log directory. They run within the operation that calls them, so they only record the event
    and act later.
    """

    on_failure: Callable[[LogDirectory], None] | None = None
    """Called once, when a failed operation takes the directory offline."""
    on_shortage: Callable[[OSError], None] | None = None
    """Called with each transient error: a full disk, or no free file descriptor."""
    on_damage: Callable[[Log, str], None] | None = None
    """Called with a damaged log and a description, by the read that found the damage."""
    on_epochs_changed: Callable[[Log], None] | None = None
    """Called with a log whose leader epoch checkpoint must be written."""
    changed_logs: Sequence[ChangedLogs] = ()
    """The collections to which a served log is added when it changes."""


NO_CALLBACKS: Final = DirectoryCallbacks()

HighWatermarkOf = Callable[[TopicPartition], int | None]
"""Returns the high watermark of a partition; None if the broker does not serve the partition."""


class LogDirectory:
    """One log directory and its logs. Methods run on the event loop; only `load_log`, `make_unserved_log`,
    `damaged.repair_log`, `close_logs`, `close` and `CheckpointWork.write_files` may run in an executor thread."""

    __slots__ = (
        "_boot_id",
        "_changed",
        "_closed",
        "_lock",
        "_moved",
        "_readers",
        "_reports",
        "checkpoints",
        "close_error",
        "damaged",
        "failure",
        "fs",
        "logs",
        "path",
        "previous_run",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        lock: FileLock,
        report: RecoveryReport,
        boot_id: str,
        reports: DirectoryCallbacks,
    ) -> None:
        self.fs = fs
        self.path = path
        self._lock = lock
        self._boot_id = boot_id
        self._reports = reports
        self.logs: dict[TopicPartition, Log] = {}
        """The logs that are served."""
        self._changed = ChangedLogs()
        """The logs whose offsets are to be noted for the next checkpoint."""
        self._moved = ChangedLogs()
        """The logs whose high watermarks are to be noted for the next checkpoint that includes high watermarks."""
        self._readers = (self._changed, self._moved, *reports.changed_logs)
        self.checkpoints = DirectoryCheckpoints(fs, path, report)
        self.damaged = DamagedLogs(fs, path, self.checkpoints)
        """The damaged logs in this directory, which are not served."""
        self.failure: OSError | None = None
        """The error for which the directory is offline; None while the directory is served."""
        self._closed: set[TopicPartition] = set()
        """The logs that `close_logs` has closed."""
        self.close_error: OSError | None = None
        """The error for which the directory could not be closed cleanly."""
        self.previous_run = PreviousRun(fs, path, boot_id)
        if self.previous_run.may_have_lost_writes:
            self.checkpoints.lower_high_watermarks()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        report: RecoveryReport,
        boot_id: str = "",
        reports: DirectoryCallbacks = NO_CALLBACKS,
    ) -> LogDirectory:
        """Make the directory if it is missing, lock it, and read its checkpoints.

        `boot_id` differs between the boots of the machine; if it is empty, every crash is taken for a loss of power.
        Raises OSError; `BlockingIOError` if another process serves the directory.
        """
        make_durable_directory(fs, path)
        lock = fs.lock(f"{path}/{LOCK_FILE}")
        try:
            return cls(fs, path, lock, report, boot_id, reports)
        except BaseException:
            lock.release()
            raise

    @property
    def was_shut_down_cleanly(self) -> bool:
        """Whether the previous process shut down cleanly. Its files are then trusted without recovery."""
        return self.previous_run.was_clean

    @property
    def high_watermarks(self) -> OffsetsByPartition:
        """The high watermarks in the last checkpoint of the previous process, lowered to the recovery points if writes
        may be lost."""
        return self.checkpoints.high_watermarks

    @property
    def previous_broker_epoch(self) -> int | None:
        """The broker epoch of the previous process, if it ended without losing anything; None if it may have lost
        records (KIP-966). DIVERGES: Apache Kafka assumes that every killed process lost what it had not synced.
        """
        return None if self.damaged else self.previous_run.broker_epoch

    def restore_clean_shutdown_file(self) -> None:
        """Write .kafka_cleanshutdown again, if it existed when this process started. Raises OSError."""
        if self.previous_run.clean_broker_epoch is not None:
            write_clean_shutdown(self.fs, self.path, self.previous_run.clean_broker_epoch)

    def record_serving_epoch(self, broker_epoch: int) -> None:
        """Write the broker epoch of this process to `.moldau-life`. Raises OSError; the next process then finds no
        epoch.
        """
        write_serving_epoch(self.fs, self.path, ServingEpoch(self._boot_id, broker_epoch))

    def drop_serving_epoch(self) -> None:
        """Remove the file with this process's broker epoch after an error of the disk, so that the next process does
        not report that nothing was lost.

        If the disk refuses the removal, the file stays, and the disk may work again before the machine restarts. That
        is harmless: the node removes the files in its other directories as well, and reports an epoch only if all of
        its directories have it.
        """
        remove_serving_epoch(self.fs, self.path)

    # Loading

    def partition_directories(
        self, suffix: str = "", report: RecoveryReport = ignore_report
    ) -> list[PartitionDirectory]:
        """List the partition directories with this suffix; without a suffix, those to serve. The metadata log is left
        out. Files with such names are reported and ignored.
        """
        found = []
        for name in self.fs.list_directory(self.path):
            parsed = parse_partition_directory(name)
            if parsed is None or parsed.suffix != suffix or parsed.topic == METADATA_TOPIC:
                continue
            if self.fs.is_directory(f"{self.path}/{name}"):
                found.append(parsed)
            else:
                report(f"{self.path}/{name} is a file and no directory of a partition: it is ignored")
        return found

    def directories_to_remove(self) -> list[str]:
        """The paths of deleted partitions whose files the previous process had not removed yet."""
        names = self.fs.list_directory(self.path)
        parsed = [(name, parse_partition_directory(name)) for name in names]
        return [f"{self.path}/{name}" for name, found in parsed if found and found.suffix == DELETE_SUFFIX]

    def load_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        now_ms: int,
        report: RecoveryReport,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        checked: RecoveryProgress | None = None,
        *,
        is_only_replica: bool = False,
    ) -> Log:
        """Open the log of a partition, existing or new, and serve it. Blocks for as long as recovery takes.

        `is_only_replica`: no other broker has a copy, so the log is served even if it has lost records. Raises
        `CorruptLog`, `CorruptPartitionMetadata` and OSError.
        """
        key = (topic, partition)
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        self.checkpoints.forget_former_log(key, path)
        log = Log.open(
            self.fs,
            path,
            config,
            recovery_point=self.checkpoints.recovery_points.get(key, 0),
            log_start_offset=self.checkpoints.log_start_offsets.get(key, 0),
            clean_shutdown=self.was_shut_down_cleanly,
            now_ms=now_ms,
            report=report,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_end_offset=self.checkpoints.cleaner_offsets.get(key),
            checked=checked,
            high_watermark=self.checkpoints.high_watermarks.get(key, 0),
            # A log that promises the disk is read past the page cache, which may hide that a sync failed.
            may_have_lost_writes=self.checkpoints.has_all_recovery_points
            and (self.previous_run.may_have_lost_writes or config.promises_flush),
            is_only_replica=is_only_replica,
        )
        if log.unflushed_count >= config.flush_messages:
            # A topic that promises durability: what the crash left in the page cache is synced before it is served.
            log.flush(now_ms)
        self.serve_log(log)
        return log

    # Serving

    def create_log(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, now_ms: int) -> Log:
        """Make a new, empty log and serve it. Raises OSError, and then leaves nothing of the log behind."""
        try:
            log = self.make_unserved_log(topic, partition, topic_id, config, now_ms)
        except OSError as error:
            self.handle_error(error)
            raise
        self.serve_log(log)
        return log

    def make_unserved_log(
        self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, now_ms: int
    ) -> Log:
        """Make a new, empty log, which is served once `serve_log` is called. May run in an executor thread. Raises
        OSError, which the caller passes to `handle_error` on the event loop."""
        path = f"{self.path}/{partition_directory_name(topic, partition)}"
        log = None
        try:
            self.checkpoints.forget_former_log((topic, partition), path)
            log = Log.open(self.fs, path, config, clean_shutdown=self.was_shut_down_cleanly, now_ms=now_ms)
            if topic_id is not None:
                log.assign_topic_id(topic_id)
        except OSError:
            if log is not None:
                log.close(0, clean=False)
            self._undo(path)
            raise
        return log

    def _undo(self, path: str) -> None:
        """Remove a half-made partition directory. The partition may be created in another log directory next, and the
        next start would find it twice. Raises OSError.
        """
        try:
            if self.fs.exists(path):
                self.fs.remove_tree(path)
        except OSError as error:
            raise OSError(errno.EIO, f"{path} is half made and cannot be removed: {error}") from error

    def serve_log(self, log: Log) -> None:
        """Serve a log that was opened in this directory."""
        self.logs[log.topic, log.partition] = log
        self.damaged.drop_repaired_log((log.topic, log.partition))
        # The hooks are set here, because `make_unserved_log` and `load_log` may run in a thread, if errors are raised.
        reports = self._reports
        log.on_shortage = reports.on_shortage
        log.on_damage = bind(reports.on_damage, log) if reports.on_damage is not None else None
        log.epochs.on_change = bind(self._epochs_changed, log)
        log.on_change = bind(self._log_changed, log)
        for each in self._readers:
            each.add_log(log)
        log.is_change_noted = True
        if self.failure is not None:
            log.fail_log(self.failure)  # The directory went offline while the log was made.
        log.on_failure = self.take_offline

    def _log_changed(self, log: Log) -> None:
        """Note that a log has changed. Report its leader epochs if their checkpoint has to be written, as after the
        first batch of an epoch."""
        for each in self._readers:
            each.add_log(log)
        self._report_epochs(log)

    def _epochs_changed(self, log: Log) -> None:
        log.is_change_noted = False  # The first batch of a new epoch is a change, whatever was noted before.
        self._report_epochs(log)

    def _report_epochs(self, log: Log) -> None:
        if self._reports.on_epochs_changed is not None and log.epochs.must_be_written(log.end_offset):
            self._reports.on_epochs_changed(log)

    def handle_error(self, error: OSError) -> None:
        """Handle the error of a failed operation. The directory goes offline, unless the error is transient."""
        if error.errno not in TRANSIENT_ERRNOS:
            self.take_offline(error)
        elif self._reports.on_shortage is not None:
            self._reports.on_shortage(error)

    def take_offline(self, error: OSError) -> None:
        """Take the directory with all its logs offline until the next start, after a failed operation."""
        if self.failure is not None:
            return
        self.failure = error
        self.drop_serving_epoch()
        for log in self.logs.values():
            log.fail_log(error)
        if self._reports.on_failure is not None:
            self._reports.on_failure(self)

    def fence_damaged_log(self, log: Log, high_watermark: int) -> None:
        """Stop serving a damaged log. Its files stay unchanged."""
        key = (log.topic, log.partition)
        self.damaged.add(key, CheckpointedOffsets(log.recovery_point, log.log_start_offset, high_watermark))
        del self.logs[key]
        log.on_failure = log.on_damage = None
        log.close(0, clean=False)

    def delete_log(self, topic: str, partition: int, unique: str) -> str:
        """Stop serving a log, and rename its directory to `-delete`. Returns the new path, which the caller removes
        later. Raises OSError.
        """
        return self.set_log_aside(topic, partition, unique, DELETE_SUFFIX)

    def set_log_aside(self, topic: str, partition: int, unique: str, suffix: str) -> str:
        """Stop serving a log, and rename its directory with `suffix`: `-stray` keeps it, `-delete` removes it later.
        Returns the new path. Raises OSError.
        """
        old, new = self.stop_serving_log(topic, partition, unique, suffix)
        self.fs.rename(old, new)
        return new

    def stop_serving_log(self, topic: str, partition: int, unique: str, suffix: str = DELETE_SUFFIX) -> tuple[str, str]:
        """Stop serving a log. Returns the path of its directory, and the path to which the caller must rename it."""
        log = self.logs.pop((topic, partition))
        self.checkpoints.remove_log((topic, partition))
        # A reply may still read from it and find its files gone. That is not the fault of the disk.
        log.on_failure = log.on_damage = None
        log.close(0, clean=False)
        return log.directory, f"{self.path}/{suffixed_directory_name(topic, partition, unique, suffix)}"

    # Checkpoints

    def collect_changed_offsets(self, count_max: int | None, high_watermark: HighWatermarkOf | None = None) -> bool:
        """Collect the offsets of at most `count_max` changed logs (None: all) for the next checkpoint. Returns whether
        more changed logs remain. Without `high_watermark` the high watermarks are not updated.
        """
        for log in self._changed.take_logs(count_max):
            key = (log.topic, log.partition)
            if self.logs.get(key) is log:
                # DIVERGES: Kafka leaves out a start that the base offset of the first segment shows. With a loss of
                # power the deleted segments come back, and the offset of the cleaner may be past them.
                start_offset = log.start_offset_to_checkpoint or None
                self.checkpoints.set_log_offsets(key, start_offset, log.recovery_point, log.first_dirty_offset)
        if high_watermark is None:
            return bool(self._changed)
        self.checkpoints.drop_previous_high_watermarks(self.damaged.high_watermarks)
        for log in self._moved.take_logs(count_max):
            key = (log.topic, log.partition)
            if self.logs.get(key) is log:
                self.checkpoints.set_high_watermark(key, high_watermark(key))
        return bool(self._changed) or bool(self._moved)

    def begin_checkpoint(self, high_watermark: HighWatermarkOf | None = None) -> CheckpointWork:
        """Begin a checkpoint: return the work that writes the changed files. The caller runs it in a thread, then calls
        `finish_checkpoint`. Without `high_watermark` the file of the high watermarks is not written.
        """
        self.collect_changed_offsets(None, high_watermark)
        return self.checkpoints.pending_work()

    def finish_checkpoint(self, work: CheckpointWork) -> None:
        """Finish a checkpoint that `begin_checkpoint` began, after its work has run without an error. Raises
        OSError.
        """
        for key in self.checkpoints.finish_write(work):
            if (log := self.logs.get(key)) is not None:
                log.directory_is_dirty = True

    # Closing

    def close_after_failure(self) -> None:
        """Close all files and unlock the directory after a failure, so that the operator can unmount the disk."""
        for log in self.logs.values():
            log.close(0, clean=False)
        self._lock.release()

    def close_logs(self, keys: Iterable[TopicPartition], now_ms: int) -> None:
        """Flush and close the logs of `keys`, as a first part of `close`. If a log cannot be closed, `close` ends
        unclean.

        Several threads may do this at the same time, each with other logs, so that one waits for the disk while another
        writes. Blocks for the syncs.
        """
        self._reports = self._reports._replace(on_failure=None)
        for key in keys:
            if self.failure is not None or self.close_error is not None:
                return
            try:
                self.logs[key].close(now_ms, clean=True, syncs_parent=False)
            except OSError as error:
                self.close_error = error
                return
            self._closed.add(key)

    def close(self, now_ms: int, broker_epoch: int, high_watermark: HighWatermarkOf | None = None) -> bool:
        """Flush and close all logs, write the checkpoints, and unlock the directory.

        Returns whether the shutdown was clean, so that the next start trusts the files. Blocks for the syncs.
        """
        self._reports = self._reports._replace(on_failure=None)
        try:
            if self.failure is not None:
                raise self.failure
            if self.close_error is not None:
                raise self.close_error
            # The order matters. A checkpoint may only cover what the logs have synced; the file of the clean shutdown
            # is written last, when every checkpoint is.
            for key, log in self.logs.items():
                if key not in self._closed:
                    log.close(now_ms, clean=True, syncs_parent=False)
            work = self.begin_checkpoint(high_watermark)
            work.write_files()
            self.finish_checkpoint(work)
            is_clean = not self.damaged  # A damaged log was not written out, so the next start has to check it.
            if is_clean:
                write_clean_shutdown(self.fs, self.path, broker_epoch)
        except OSError as error:
            self.close_error, is_clean = error, False
            for log in self.logs.values():
                log.close(now_ms, clean=False)
        # DIVERGES: Kafka removes the .lock file when it stops; a lock file that goes away can let two processes in.
        self._lock.release()
        return is_clean
