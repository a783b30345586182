"""The logs of this broker in all its log directories: opens, creates, deletes, checkpoints and closes them."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from moldau.broker.config.config import Config
from moldau.broker.replicas.log_checkpoints import LogCheckpoints
from moldau.broker.replicas.log_directories import FullDisks, LogOpening, NodeDirectories, OpeningResult
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import InSlices
from moldau.kraft.image.cluster import LOST_DIRECTORY
from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.directory.damaged_logs import RepairedLog
from moldau.storage.directory.log_directory import DirectoryCallbacks, HighWatermarkOf, LogDirectory
from moldau.storage.directory.previous_run import PreviousRun
from moldau.storage.files.log_paths import STRAY_SUFFIX
from moldau.storage.files.port import FileSystem
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.damaged_log import find_damage
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import LogConfig

log = logging.getLogger("moldau.logs")

STRAYS_NAMED: Final = 20
"""The largest number of stray partitions that one log line names."""

T = TypeVar("T")
ConfigOfTopic = Callable[[str], LogConfig]


class DuplicateLog(ValueError):
    """Two log directories hold a log of the same partition; the operator has to decide which of them is kept."""


class UnloadedLog(NamedTuple):
    """A partition whose log is not loaded yet, and the log directory that it is in."""

    directory: LogDirectory
    key: TopicPartition


class NewLog(NamedTuple):
    """The partition, topic id and settings of a log that is to be created."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig


class LocalLogs:
    """All logs of a broker. Its methods are called on the event loop; blocking work runs in executor threads.

    A directory that fails moves from `directories` to `offline`, until the next start.
    """

    def __init__(
        self,
        config: Config,
        environment: Environment,
        found: NodeDirectories,
        failed: Callable[[LogDirectory], None],
        damaged: Callable[[Log, str], None],
        epochs_changed: Callable[[Log], None],
        changes: Sequence[ChangedLogs] = (),
    ) -> None:
        """Open the log directories. Raises OSError if the node cannot start because a directory cannot be opened.

        `failed` is called with each directory that fails. `damaged` is called with each log whose batches differ from
        what was written, and with the reason. Both are called during the operation that found the error.
        `epochs_changed` gets each log whose leader epochs change, and each of `changes` gets the logs that change.
        """
        self._environment = environment
        self._recovery_threads = config.integer("num.recovery.threads.per.data.dir")
        self._producer_expiration_ms = config.integer("producer.id.expiration.ms")
        self._tell = failed
        self._tell_damaged = damaged
        self._epochs_changed = epochs_changed
        self._changes = changes
        self.damaged: dict[TopicPartition, str] = {}
        """The partitions whose logs were found damaged when they were opened, each with the reason."""
        self.opened: OpeningResult | None = None
        """What opening the logs found; None until the logs are open, and if there was no log to open."""
        self.full_disks = FullDisks(environment.fs)
        self.properties = found.properties
        """The meta.properties of each log directory, by path. All have the same cluster id and node id."""
        self.offline = dict(found.unusable)
        """The paths of the offline log directories, each with the reason why it is offline."""
        self.directories: list[LogDirectory] = []
        """The online log directories."""
        self._metadata_path = config.metadata_log_dir
        for path in config.log_dirs:
            if path not in self.offline:
                self._open(path)
        self._opened = tuple(self.directories)
        self._by_path = {directory.path: directory for directory in self.directories}
        self._checkpoints = LogCheckpoints(environment, lambda: self.directories)

    @property
    def cluster_id(self) -> str:
        return next(iter(self.properties.values())).cluster_id

    @property
    def directory_ids(self) -> list[bytes]:
        """The ids of the online log directories."""
        ids = [self.directory_id(directory.path) for directory in self.directories]
        return [directory_id for directory_id in ids if directory_id is not None]

    def directory_id(self, path: str) -> bytes | None:
        return self.properties[path].directory_id

    def directory_of(self, opened: Log) -> str:
        """The path of the log directory that a log is in."""
        return opened.directory.rpartition("/")[0]

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the previous process of this node, if that process ended without losing records;
        otherwise -1. It is also -1 if a directory is offline, or if the directories noted different epochs.
        """
        epochs = {directory.previous_broker_epoch for directory in self.directories}
        epochs |= {None for _ in self.offline}
        only = epochs.pop() if len(epochs) == 1 else None
        return -1 if only is None else only

    def note_serving_epoch(self, broker_epoch: int) -> None:
        """Write the broker epoch of this process into all log directories, once this broker is registered."""
        for directory in self.directories:
            with suppress(OSError):  # The next start then does not know the epoch, and claims nothing.
                directory.record_serving_epoch(broker_epoch)

    def forget_serving_epochs(self) -> None:
        """Remove the broker epoch of this process from all log directories after a disk error: the next process must
        not claim that no record was lost.
        """
        for directory in self.directories:
            directory.drop_serving_epoch()

    def high_watermark(self, opened: Log) -> int:
        """The checkpointed high watermark of a log, limited to the offsets that the log has."""
        known = self._of(opened).high_watermarks.get((opened.topic, opened.partition), 0)
        return min(max(known, opened.log_start_offset), opened.end_offset)

    async def open_all(
        self, wanted: Mapping[TopicPartition, AssignedReplica], config_of: ConfigOfTopic
    ) -> dict[TopicPartition, Log]:
        """Open the logs of the `wanted` partitions, create those that are missing, and set all other logs aside as
        stray. Returns the logs by partition.

        A partition that is, or may be, in an offline directory is left out. Recovery runs in executor threads. A
        directory in which a log cannot be opened goes offline. Raises OSError if a new log cannot be created, and
        `DuplicateLog`.
        """
        now_ms = self._environment.wall_ms()
        found = await _listed(self._environment, self.directories, _partitions_in)
        configs: dict[str, LogConfig] = {}
        async for _, (topic, _) in InSlices(found):
            if topic not in configs:
                configs[topic] = config_of(topic)
        if found:
            log.info("opening %d partitions%s", len(found), "" if self._was_clean else " after an unclean stop")
            for failed_directory, error in await self._load_all(found, configs, wanted, now_ms):
                failed_directory.take_offline(error)
        logs: dict[TopicPartition, Log] = {}
        strays: list[str] = []
        async for directory, key in InSlices(found):
            with offline_on_error(directory):
                if self._settle(directory, key, wanted, logs):
                    strays.append(f"{key[0]}-{key[1]}")
        if len(strays) > max(1, len(found) // 2):
            log.error(
                "of the %d partitions here, the metadata names %d not as replicas of this broker: unless they were"
                " deleted or moved, metadata was lost. Their directories are kept with the suffix -stray: %s%s",
                len(found),
                len(strays),
                ", ".join(strays[:STRAYS_NAMED]),
                " …" if len(strays) > STRAYS_NAMED else "",
            )
        async for key, partition in InSlices(wanted.items()):
            if key in logs:
                with offline_on_error(self._of(logs[key])):
                    logs[key].assign_topic_id(partition.topic_id)
            elif key not in self.damaged and not self._may_lie_offline(partition):
                logs[key] = self.create(*key, partition.topic_id, config_of(key[0]))
        return {key: opened for key, opened in logs.items() if opened.failure is None}

    def _settle(
        self,
        directory: LogDirectory,
        key: TopicPartition,
        wanted: Mapping[TopicPartition, AssignedReplica],
        logs: dict[TopicPartition, Log],
    ) -> bool:
        """Serve a log that was found at start, or set it aside as stray. Returns whether a log was set aside. Raises
        OSError and `DuplicateLog`. A log to be served is added to `logs`.
        """
        if directory.failure is not None:
            return False
        assigned = wanted.get(key)
        if key in directory.damaged:
            if assigned is None or not directory.damaged.may_belong_to(*key, assigned.topic_id):
                self.damaged.pop(key, None)
                directory.damaged.remove(*key, self._unique(), STRAY_SUFFIX)
                return True
            return False
        opened = directory.logs[key]
        if assigned is None or not assigned.has(opened.topic_id, opened.end_offset):
            log.warning(
                "%s-%d in %s does not belong to this broker any more: its directory is kept with the suffix -stray",
                *key,
                directory.path,
            )
            directory.set_log_aside(*key, self._unique(), STRAY_SUFFIX)
            return True
        former = former_copy(self, opened, logs[key], assigned) if key in logs else None
        if former is not opened:
            logs[key] = opened
            if opened.epochs.is_dirty:
                self._epochs_changed(opened)  # Recovery has found others in the batches than the checkpoint names.
        if former is None:
            return False
        log.warning(
            "%s holds an earlier copy of %s-%d: it is kept with the suffix -stray", self.directory_of(former), *key
        )
        with offline_on_error(self._of(former)):
            self._of(former).set_log_aside(*key, self._unique(), STRAY_SUFFIX)
        return True

    def _may_lie_offline(self, partition: AssignedReplica) -> bool:
        """Whether a partition that was not found may be in an offline directory."""
        return bool(self.offline) and partition.directory_id not in self.directory_ids

    def create(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Log:
        """Create an empty log in the directory with the fewest logs. If that fails, each other directory is tried,
        those with few logs first.

        Raises the OSError of the last directory that was tried. Raises EBUSY while a log of a deleted topic with the
        same name is still being repaired.
        """
        if _is_occupied(self.directories, (topic, index)):
            raise OSError(errno.EBUSY, "the log of a former topic of this name is still being repaired")
        refusal = OSError(errno.EIO, "no log directory is online")
        for directory in sorted(self.directories, key=lambda directory: len(directory.logs)):
            try:
                return directory.create_log(topic, index, topic_id, config, self._environment.wall_ms())
            except OSError as error:
                refusal = error
                log.debug("%s-%d cannot be created in %s: %s", topic, index, directory.path, error)
        raise refusal

    async def make(self, wanted: Sequence[NewLog]) -> list[Log | None]:
        """Create the `wanted` empty logs in an executor thread. Returns for each of them the log, or None if it was not
        created; the caller may try again with `create`.
        """
        counts = {directory.path: len(directory.logs) for directory in self.directories}
        plan: list[tuple[LogDirectory | None, NewLog]] = []
        for new in wanted:
            emptiest = min(self.directories, key=lambda each: counts[each.path], default=None)
            if _is_occupied(self.directories, (new.topic, new.partition)):
                emptiest = None
            if emptiest is not None:
                counts[emptiest.path] += 1
            plan.append((emptiest, new))
        now_ms = self._environment.wall_ms()
        made = await self._environment.offload(lambda: [_made(directory, new, now_ms) for directory, new in plan])
        adopted: list[Log | None] = []
        for (directory, _), log in zip(plan, made, strict=True):
            adopted.append(log if isinstance(log, Log) else None)
            if directory is not None and isinstance(log, Log):
                directory.serve_log(log)
            elif directory is not None and isinstance(log, OSError):
                directory.handle_error(log)
        return adopted

    async def delete_many(self, deleted: Sequence[Log]) -> list[str | None]:
        """Delete many logs as `delete` does, but rename their directories in an executor thread. Returns the path of
        each renamed directory, or None for a log whose directory failed.
        """
        renames = [
            (self._of(each), *self._of(each).stop_serving_log(each.topic, each.partition, self._unique()))
            for each in deleted
        ]
        fs = self._environment.fs
        refusals = await self._environment.offload(lambda: [_renamed(fs, old, new) for _, old, new in renames])
        for (directory, _, _), refusal in zip(renames, refusals, strict=True):
            if refusal is not None:
                directory.take_offline(refusal)
        return [new if refusal is None else None for (_, _, new), refusal in zip(renames, refusals, strict=True)]

    def delete(self, deleted: Log) -> str | None:
        """Stop serving a log and rename its directory. Returns the path of the renamed directory, which the caller
        removes later.

        Returns None if the log directory failed. The next start that finds the log sets it aside as stray.
        """
        directory = self._of(deleted)
        with offline_on_error(directory):
            return directory.delete_log(deleted.topic, deleted.partition, self._unique())
        return None

    def fence(self, damaged: Log, high_watermark: int) -> LogDirectory:
        """Stop serving a damaged log, whose files stay as they are. Returns its log directory."""
        directory = self._of(damaged)
        directory.fence_damaged_log(damaged, high_watermark)
        return directory

    def damaged_directory(self, key: TopicPartition) -> LogDirectory | None:
        """The log directory with the damaged log of a partition; None if the partition has no damaged log."""
        return next((directory for directory in self.directories if key in directory.damaged), None)

    async def repair(self, directory: LogDirectory, key: TopicPartition, config: LogConfig) -> RepairedLog:
        """Repair a damaged log in an executor thread (`DamagedLogs.repair_log`). Raises OSError."""
        work = partial(
            directory.damaged.repair_log, *key, config, self._environment.wall_ms(), log.warning, self._unique()
        )
        repaired: RepairedLog = await self._environment.offload(work)
        return repaired

    def remove_damaged(self, key: TopicPartition) -> str | None:
        """Delete the damaged log of a partition. Returns the path of the renamed directory, which the caller removes
        later; None if there is no damaged log, or if the log directory failed.
        """
        directory = self.damaged_directory(key)
        if directory is not None:
            with offline_on_error(directory):
                return directory.damaged.remove(*key, self._unique())
        return None

    async def removable_directories(self) -> list[str]:
        """The renamed directories of deleted logs that the previous process did not remove."""
        return await _listed(self._environment, self.directories, LogDirectory.directories_to_remove)

    async def checkpoint(self, high_watermark: HighWatermarkOf | None = None) -> bool:
        """Write the checkpoint files in which an offset changed. Returns whether all of them are durable.
        `high_watermark` gives the high watermark of a partition; if it is None, the file of high watermarks stays as it
        is.
        """
        return await self._checkpoints.write(high_watermark)

    async def close(self, broker_epoch: int, high_watermark: HighWatermarkOf) -> None:
        """Flush and close all logs, so that the next start needs no recovery."""
        await self._checkpoints.finish()
        now_ms = self._environment.wall_ms()
        if self.offline:
            broker_epoch = -1  # A directory that failed may have lost writes.
        for directory in self._opened:
            keys, count = list(directory.logs), self._recovery_threads
            shares = [share for first in range(count) if (share := keys[first::count])]
            await asyncio.gather(
                *(self._environment.offload(partial(directory.close_logs, share, now_ms)) for share in shares)
            )
            is_clean = await self._environment.offload(partial(directory.close, now_ms, broker_epoch, high_watermark))
            if not is_clean:
                log.error(
                    "log directory %s was not closed cleanly, and is recovered at the next start: %s",
                    directory.path,
                    directory.close_error or "it has damaged logs",
                )

    @property
    def _was_clean(self) -> bool:
        return all(directory.was_shut_down_cleanly for directory in self.directories)

    def _of(self, opened: Log) -> LogDirectory:
        return self._by_path[self.directory_of(opened)]

    def _open(self, path: str) -> None:
        """Open a log directory: lock it and read its checkpoints. A directory that cannot be opened goes offline.

        Raises OSError instead if it is the metadata log directory, and `BlockingIOError` if another process serves it.
        """
        shortage = partial(self.full_disks.on_transient_error, path)
        reports = DirectoryCallbacks(self._failed, shortage, self._tell_damaged, self._epochs_changed, self._changes)
        try:
            directory = LogDirectory.open(self._environment.fs, path, log.warning, self._environment.boot_id(), reports)
        except OSError as error:
            if isinstance(error, BlockingIOError) or path == self._metadata_path:
                raise
            log.error("log directory %s is offline until the next start: %s", path, error)
            self.offline[path] = str(error)
        else:
            self.directories.append(directory)

    def _failed(self, directory: LogDirectory) -> None:
        log.error("log directory %s is offline until the next start: %s", directory.path, directory.failure)
        self.directories.remove(directory)
        self.offline[directory.path] = str(directory.failure)
        # The failed directory may be unable to remove its file, and a claim needs the files of all directories.
        self.forget_serving_epochs()
        self._tell(directory)

    async def _load_all(
        self,
        found: list[UnloadedLog],
        configs: Mapping[str, LogConfig],
        wanted: Mapping[TopicPartition, AssignedReplica],
        now_ms: int,
    ) -> list[tuple[LogDirectory, OSError]]:
        """Open all logs that were found. Returns the directories that have to go offline, each with the error.

        If the metadata says that the directory of a replica is LOST, the replica was damaged, and its log is read from
        end to end. After an unclean stop several threads recover logs: one waits for the disk while another compares
        checksums.
        """
        count = 1 if self._was_clean else self._recovery_threads * len(self.directories)
        shares = [share for first in range(count) if (share := found[first::count])]
        opening = LogOpening(self._environment.precise_ns, len(found), len(shares), was_clean=self._was_clean)
        failures = await asyncio.gather(
            *(
                self._environment.offload(partial(self._load, thread, share, configs, wanted, now_ms, opening))
                for thread, share in enumerate(shares)
            )
        )
        self.opened = opening.result(len(self.damaged))
        return list({directory.path: (directory, error) for each in failures for directory, error in each}.values())

    def _load(
        self,
        thread: int,
        share: list[UnloadedLog],
        configs: Mapping[str, LogConfig],
        wanted: Mapping[TopicPartition, AssignedReplica],
        now_ms: int,
        opening: LogOpening,
    ) -> list[tuple[LogDirectory, OSError]]:
        """Open the logs of one `share`, in an executor thread. `thread` is the number of the share, from 0. Returns the
        directories that failed, each with its error.
        """
        expiration_ms, checked = self._producer_expiration_ms, partial(opening.note_checked, thread)
        failures: dict[str, tuple[LogDirectory, OSError]] = {}
        for each in share:
            directory, (topic, index) = each
            assigned = wanted.get(each.key, UNASSIGNED)
            if directory.path not in failures:
                try:
                    opened_log = directory.load_log(
                        topic,
                        index,
                        configs[topic],
                        now_ms,
                        log.warning,
                        expiration_ms,
                        checked,
                        is_only_replica=assigned.is_only,
                    )
                    is_suspect = assigned.directory_id == LOST_DIRECTORY
                    found = find_damage(directory.fs, opened_log.directory) if is_suspect else None
                    if found is not None:
                        directory.fence_damaged_log(opened_log, directory.high_watermarks.get(each.key, 0))
                        self.damaged[each.key] = found.reason
                except (CorruptLog, CorruptPartitionMetadata) as damage:
                    directory.damaged.add_unopened(topic, index)
                    self.damaged[each.key] = str(damage)
                except OSError as error:
                    failures[directory.path] = directory, error
            opening.note_opened(thread)
        return list(failures.values())

    def _unique(self) -> str:
        return self._environment.entropy(16).hex()


async def _listed(
    environment: Environment, directories: Sequence[LogDirectory], listing: Callable[[LogDirectory], list[T]]
) -> list[T]:
    """Call `listing` with each directory in an executor thread. Returns all results in one list. A directory that
    cannot be listed goes offline.
    """
    found: list[T] = []
    for directory in tuple(directories):
        with offline_on_error(directory):
            found += await environment.offload(partial(listing, directory))
    return found


def _partitions_in(directory: LogDirectory) -> list[UnloadedLog]:
    """The partitions whose logs are in a log directory. Blocks; safe in an executor thread. Raises OSError."""
    found = directory.partition_directories(report=log.warning)
    return [UnloadedLog(directory, (each.topic, each.partition)) for each in found]


def _is_occupied(directories: Sequence[LogDirectory], key: TopicPartition) -> bool:
    """Whether a directory has a log of this topic name and index, served or damaged. A damaged log of a deleted topic
    may still be under repair.
    """
    return any(key in directory.logs or key in directory.damaged for directory in directories)


def _made(directory: LogDirectory | None, new: NewLog, now_ms: int) -> Log | OSError | None:
    """Create a log, in an executor thread. Returns the log, the error, or None if there is no directory for it."""
    if directory is None:
        return None
    try:
        return directory.make_unserved_log(*new, now_ms)
    except OSError as error:
        return error


def _renamed(fs: FileSystem, old: str, new: str) -> OSError | None:
    """Rename a directory, in an executor thread. Returns the error if that failed."""
    try:
        fs.rename(old, new)
    except OSError as error:
        return error
    return None


@contextmanager
def offline_on_error(directory: LogDirectory) -> Iterator[None]:
    """Take the directory offline after an OSError in the block, unless the error is transient. The error is not
    raised.
    """
    try:
        yield
    except OSError as error:
        directory.handle_error(error)


class AssignedReplica(NamedTuple):
    """The metadata of a replica that is assigned to this broker."""

    topic_id: bytes
    directory_id: bytes
    """The log directory of the replica, as the metadata has it (KIP-858)."""
    is_only: bool = False
    """Whether the partition has no other replica."""

    def has(self, topic_id: bytes | None, end_offset: int) -> bool:
        """Whether a log with this topic id and end offset belongs to this replica, and not to a deleted topic of the
        same name.

        A loss of power may remove the topic id of a log that was never flushed. A log without a topic id belongs to
        this replica only if it has no records, because records may be those of the deleted topic.
        """
        return topic_id == self.topic_id or (topic_id is None and not end_offset)


UNASSIGNED: Final = AssignedReplica(bytes(16), bytes(16))


def previous_run_in(directories: Sequence[LogDirectory], path: str) -> PreviousRun | None:
    """The state in which the previous process left a log directory; None if the path is none of the directories."""
    return next((each.previous_run for each in directories if each.path == path), None)


def put_back_clean_shutdown(directories: Sequence[LogDirectory]) -> None:
    """Restore the clean-shutdown files that this start removed, because it ends before it has opened a log."""
    for directory in directories:
        with suppress(OSError):  # The next start then recovers the logs.
            directory.restore_clean_shutdown_file()


def former_copy(logs: LocalLogs, first: Log, second: Log, assigned: AssignedReplica) -> Log:
    """Which of two logs of one partition is not in the log directory that the metadata names. Such a log is in a
    directory that was offline while the replica left this broker and came back. Raises `DuplicateLog` if the
    metadata names neither directory.

    DIVERGES: Apache Kafka does not start with two logs of one partition, whatever the metadata says.
    """
    paths = logs.directory_of(first), logs.directory_of(second)
    for path, other in zip(paths, (second, first), strict=True):
        if logs.directory_id(path) == assigned.directory_id:
            return other
    raise DuplicateLog(
        f"partition {first.topic}-{first.partition} is in {paths[0]} and {paths[1]}: move one of the two out of its"
        " log directory"
    )
