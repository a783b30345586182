"""The logs of this broker over all its log directories: opened at start, made, deleted, checkpointed, closed."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from broker.config.config import Config
from broker.replicas.disk_space import DiskSpace
from broker.replicas.node_directories import Directories
from broker.runtime.environment import Environment
from kraft.image.cluster import LOST_DIRECTORY
from storage.checkpoints.offset_checkpoint import TopicPartition
from storage.checkpoints.partition_metadata import CorruptPartitionMetadata
from storage.directory.damaged_logs import Repaired
from storage.directory.log_directory import LogDirectory
from storage.files.log_paths import STRAY_SUFFIX
from storage.files.port import FileSystem
from storage.log.damaged_log import find_damage
from storage.log.log import Log
from storage.log.recovery import CorruptLog
from storage.log_config import LogConfig

log = logging.getLogger("moldau.logs")

ConfigOfTopic = Callable[[str], LogConfig]
HighWatermarks = Mapping[TopicPartition, int]


class DuplicateLog(ValueError):
    """Two directories hold the same partition: nobody knows which is the right one."""


class Found(NamedTuple):
    """A partition's directory, before it is loaded."""

    directory: LogDirectory
    key: TopicPartition


class NewLog(NamedTuple):
    """A log to be made."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig


class Wanted(NamedTuple):
    """A partition of this broker, as the metadata has it."""

    topic_id: bytes
    directory_id: bytes
    """Where it was put, as far as that was written down."""


class LocalLogs:
    """Everything here belongs to the loop; what blocks for long is offloaded.

    A directory that fails goes from `directories` to `offline` and stays there until the next start; `failed` is told
    of it, in the midst of whatever the disk refused. `damaged` is told of one log that is not what was written.
    """

    def __init__(
        self,
        config: Config,
        environment: Environment,
        found: Directories,
        failed: Callable[[LogDirectory], None],
        damaged: Callable[[Log, str], None],
    ) -> None:
        self._environment = environment
        self._recovery_threads = config.integer("num.recovery.threads.per.data.dir")
        self._producer_expiration_ms = config.integer("producer.id.expiration.ms")
        self._tell = failed
        self._tell_damaged = damaged
        self.damaged: dict[TopicPartition, str] = {}
        """The logs that were found damaged when they were opened, and why."""
        self.space = DiskSpace(environment.fs)
        self.properties = found.properties
        """By path, what meta.properties says: the same cluster and node everywhere."""
        self.offline = dict(found.unusable)
        """The paths of directories that are not served, and why."""
        self.directories: list[LogDirectory] = []
        """Those that are served."""
        self._metadata_path = config.metadata_log_dir
        for path in config.log_dirs:
            if path not in self.offline:
                self._open(path)
        self._opened = tuple(self.directories)
        self._by_path = {directory.path: directory for directory in self.directories}
        self._checkpointing = asyncio.Lock()
        self._next_checkpoint: asyncio.Task[bool] | None = None
        """The one that whoever asks now will share."""
        self._high_watermarks: HighWatermarks | None = None
        """What it will write of them."""
        self._writing: asyncio.Task[None] | None = None
        """The checkpoint on its way to the disk. It goes on when the job that began it is cancelled."""

    @property
    def cluster_id(self) -> str:
        return next(iter(self.properties.values())).cluster_id

    @property
    def directory_ids(self) -> list[bytes]:
        """Of the directories that are served."""
        ids = [self.directory_id(directory.path) for directory in self.directories]
        return [directory_id for directory_id in ids if directory_id is not None]

    def directory_id(self, path: str) -> bytes | None:
        return self.properties[path].directory_id

    def directory_of(self, opened: Log) -> str:
        """The path of the log directory that a log is in."""
        return opened.directory.rpartition("/")[0]

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch in which this broker last ended without a loss, -1 where any directory does not know."""
        epochs = {directory.previous_broker_epoch for directory in self.directories}
        epochs |= {None for _ in self.offline}
        only = epochs.pop() if len(epochs) == 1 else None
        return -1 if only is None else only

    def note_serving_epoch(self, broker_epoch: int) -> None:
        """This process's epoch is known."""
        for directory in self.directories:
            with suppress(OSError):  # nothing is promised of it then
                directory.note_serving_epoch(broker_epoch)

    def forget_serving_epochs(self) -> None:
        """A disk has failed: the process after this one is not to say that nothing was lost."""
        for directory in self.directories:
            directory.forget_serving_epoch()

    def high_watermark(self, opened: Log) -> int:
        """Up to where the log was committed when it was last checkpointed, within what the log now holds."""
        known = self._of(opened).high_watermarks.get((opened.topic, opened.partition), 0)
        return min(max(known, opened.log_start_offset), opened.end_offset)

    async def open_all(
        self, wanted: Mapping[TopicPartition, Wanted], config_of: ConfigOfTopic
    ) -> dict[TopicPartition, Log]:
        """Open the wanted partitions, set others aside, make those that are missing; left out is what lies, or may lie,
        in a directory that is offline.

        Recovery runs beside the loop. A directory in which a partition cannot be opened is offline. Raises OSError
        where a new partition cannot be made.
        """
        now_ms = self._environment.wall_ms()
        found = [*self._partitions()]
        configs = {topic: config_of(topic) for topic in dict.fromkeys(key[0] for _, key in found)}
        suspects = {key for key, each in wanted.items() if each.directory_id == LOST_DIRECTORY}
        if found:
            log.info("opening %d partitions%s", len(found), "" if self._was_clean else " after an unclean stop")
            for failed_directory, error in await self._load_all(found, configs, suspects, now_ms):
                failed_directory.fail(error)
        logs: dict[TopicPartition, Log] = {}
        for directory, key in found:
            with failing(directory):
                self._settle(directory, key, wanted, logs)
        for key, partition in wanted.items():
            if key in logs:
                with failing(self._of(logs[key])):
                    logs[key].assign_topic_id(partition.topic_id)
            elif key not in self.damaged and not self._may_lie_offline(partition):
                logs[key] = self.create(*key, partition.topic_id, config_of(key[0]))
        return {key: opened for key, opened in logs.items() if opened.failure is None}

    def _settle(
        self,
        directory: LogDirectory,
        key: TopicPartition,
        wanted: Mapping[TopicPartition, Wanted],
        logs: dict[TopicPartition, Log],
    ) -> None:
        """Keep what was found, or set it aside. Raises OSError."""
        if directory.failure is not None:
            return
        if key in directory.damaged:
            if key not in wanted:
                self.damaged.pop(key, None)
                directory.damaged.remove(*key, self._unique(), STRAY_SUFFIX)
            return
        if not self._is_wanted(directory.logs[key], wanted):
            log.warning("%s-%d is not a partition of this broker any more: set aside as stray", *key)
            directory.set_aside(*key, self._unique(), STRAY_SUFFIX)
            return
        if key in logs:
            twice = f"{directory.path} and {self.directory_of(logs[key])}"
            raise DuplicateLog(f"partition {key[0]}-{key[1]} is in {twice}: move one of them away")
        logs[key] = directory.logs[key]

    def _may_lie_offline(self, partition: Wanted) -> bool:
        """Whether a partition that was not found is in a directory that cannot be looked into."""
        return bool(self.offline) and partition.directory_id not in self.directory_ids

    def create(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Log:
        """A new, empty log in the directory that holds the fewest; where that cannot be, in the next.

        Raises the OSError of the last one that refused.
        """
        refusal = OSError(errno.EIO, "no log directory is online")
        for directory in sorted(self.directories, key=lambda directory: len(directory.logs)):
            try:
                return directory.create(topic, index, topic_id, config, self._environment.wall_ms())
            except OSError as error:
                refusal = error
                log.debug("%s-%d cannot be made in %s: %s", topic, index, directory.path, error)
        raise refusal

    async def make(self, wanted: Sequence[NewLog]) -> list[Log | None]:
        """New, empty logs, made beside the loop; None where the disk refused, which `create` may try again."""
        counts = {directory.path: len(directory.logs) for directory in self.directories}
        plan: list[tuple[LogDirectory | None, NewLog]] = []
        for new in wanted:
            emptiest = min(self.directories, key=lambda each: counts[each.path], default=None)
            if emptiest is not None:
                counts[emptiest.path] += 1
            plan.append((emptiest, new))
        now_ms = self._environment.wall_ms()
        made = await self._environment.offload(lambda: [_made(directory, new, now_ms) for directory, new in plan])
        adopted: list[Log | None] = []
        for (directory, _), log in zip(plan, made, strict=True):
            adopted.append(log if isinstance(log, Log) else None)
            if directory is not None and isinstance(log, Log):
                directory.adopt(log)
            elif directory is not None and isinstance(log, OSError):
                directory.refused(log)
        return adopted

    async def delete_many(self, deleted: Sequence[Log]) -> list[str | None]:
        """As `delete`, with the disk's part beside the loop."""
        renames = [
            (self._of(each), *self._of(each).let_go(each.topic, each.partition, self._unique())) for each in deleted
        ]
        fs = self._environment.fs
        refusals = await self._environment.offload(lambda: [_renamed(fs, old, new) for _, old, new in renames])
        for (directory, _, _), refusal in zip(renames, refusals, strict=True):
            if refusal is not None:
                directory.fail(refusal)
        return [new if refusal is None else None for (_, _, new), refusal in zip(renames, refusals, strict=True)]

    def delete(self, deleted: Log) -> str | None:
        """Take a log away at once; the path whose tree is to be removed later, None where its directory failed: there
        it lies until a start finds it."""
        directory = self._of(deleted)
        with failing(directory):
            return directory.delete(deleted.topic, deleted.partition, self._unique())
        return None

    def fence(self, damaged: Log, high_watermark: int) -> LogDirectory:
        """Serve a damaged log no more; the directory where it lies, as it is."""
        directory = self._of(damaged)
        directory.fence(damaged, high_watermark)
        return directory

    def where_damaged(self, key: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if key in directory.damaged), None)

    async def repair(self, directory: LogDirectory, key: TopicPartition, config: LogConfig) -> Repaired:
        """See `DamagedLogs.repair`. Raises OSError."""
        work = partial(directory.damaged.repair, *key, config, self._environment.wall_ms(), log.info, self._unique())
        repaired: Repaired = await self._environment.offload(work)
        return repaired

    def remove_damaged(self, key: TopicPartition) -> str | None:
        """As `delete`, of a damaged log."""
        directory = self.where_damaged(key)
        if directory is not None:
            with failing(directory):
                return directory.damaged.remove(*key, self._unique())
        return None

    def left_to_remove(self) -> list[str]:
        """Trees whose removal an earlier process did not finish."""
        paths: list[str] = []
        for directory in tuple(self.directories):
            with failing(directory):
                paths += directory.directories_to_remove()
        return paths

    async def checkpoint(self, high_watermarks: HighWatermarks | None = None) -> bool:
        """Write the checkpoints in which something moved, as it is then; whether all of it is durable.

        Whoever asks while one is being written shares the next, however many they are.
        """
        if high_watermarks is not None:
            self._high_watermarks = high_watermarks
        if self._next_checkpoint is None:
            self._next_checkpoint = asyncio.get_running_loop().create_task(self._checkpoint_next())
        return await asyncio.shield(self._next_checkpoint)

    async def _checkpoint_next(self) -> bool:
        async with self._checkpointing:
            self._next_checkpoint = None
            high_watermarks, self._high_watermarks = self._high_watermarks, None
            return await self._write_checkpoints(high_watermarks)

    async def _write_checkpoints(self, high_watermarks: HighWatermarks | None) -> bool:
        is_written = True
        for directory in tuple(self.directories):
            mine = _of_directory(directory, high_watermarks) if high_watermarks is not None else None
            work = directory.checkpoint(mine)
            if not work:
                continue
            self._writing = asyncio.get_running_loop().create_task(self._environment.offload(work.run))
            try:
                await asyncio.shield(self._writing)
                directory.checkpointed(work)
            except OSError as error:
                is_written = False
                directory.refused(error)
        return is_written

    async def close(self, broker_epoch: int, high_watermarks: HighWatermarks) -> None:
        """Write everything out; the next start believes the files."""
        if self._next_checkpoint is not None:
            await asyncio.wait([self._next_checkpoint])
        if self._writing is not None:
            await asyncio.wait([self._writing])  # both write the same files
            self._writing = None
        now_ms = self._environment.wall_ms()
        if self.offline:
            broker_epoch = -1  # what is there may have been lost
        for directory in self._opened:
            mine = _of_directory(directory, high_watermarks)
            is_clean = await self._environment.offload(partial(directory.close, now_ms, broker_epoch, mine))
            if not is_clean:
                log.error("%s was not closed cleanly: the next start will recover it", directory.path)

    @property
    def _was_clean(self) -> bool:
        return all(directory.was_clean for directory in self.directories)

    def _of(self, opened: Log) -> LogDirectory:
        return self._by_path[self.directory_of(opened)]

    def _open(self, path: str) -> None:
        """Lock a directory and read its checkpoints. Raises OSError where the node cannot do without it, or another
        process serves it."""
        try:
            directory = LogDirectory.open(self._environment.fs, path, log.info, self._environment.boot_id())
        except OSError as error:
            if isinstance(error, BlockingIOError) or path == self._metadata_path:
                raise
            log.error("log directory %s is offline: %s", path, error)
            self.offline[path] = str(error)
        else:
            directory.on_failure = self._failed
            directory.on_shortage = partial(self.space.refused, path)
            directory.on_damage = self._tell_damaged
            self.directories.append(directory)

    def _failed(self, directory: LogDirectory) -> None:
        log.error("log directory %s is offline: %s", directory.path, directory.failure)
        self.directories.remove(directory)
        self.offline[directory.path] = str(directory.failure)
        self.forget_serving_epochs()  # the failed one may not be able to, and a node needs all to agree
        self._tell(directory)

    def _partitions(self) -> Iterator[Found]:
        for directory in tuple(self.directories):
            with failing(directory):
                yield from [Found(directory, (each.topic, each.partition)) for each in directory.partitions()]

    async def _load_all(
        self, found: list[Found], configs: Mapping[str, LogConfig], suspects: Set[TopicPartition], now_ms: int
    ) -> list[tuple[LogDirectory, OSError]]:
        """Open everything; the directories that are to go offline. Suspects are read from end to end.

        After a crash in several threads: one reads from the disk while another checks what it has read.
        """
        count = 1 if self._was_clean else self._recovery_threads * len(self.directories)
        opened: list[Found] = []
        shares = [share for first in range(count) if (share := found[first::count])]
        failures = await asyncio.gather(
            *(
                self._environment.offload(partial(self._load, share, configs, suspects, now_ms, opened, len(found)))
                for share in shares
            )
        )
        return list({directory.path: (directory, error) for each in failures for directory, error in each}.values())

    def _load(
        self,
        share: list[Found],
        configs: Mapping[str, LogConfig],
        suspects: Set[TopicPartition],
        now_ms: int,
        opened: list[Found],
        found_count: int,
    ) -> list[tuple[LogDirectory, OSError]]:
        """In a thread; the directories that are to go offline. `opened` is what all threads have opened."""
        failures: dict[str, tuple[LogDirectory, OSError]] = {}
        for each in share:
            directory, (topic, index) = each
            if directory.path not in failures:
                try:
                    opened_log = directory.load(
                        topic, index, configs[topic], now_ms, log.info, self._producer_expiration_ms
                    )
                    found = find_damage(directory.fs, opened_log.directory) if each.key in suspects else None
                    if found is not None:
                        directory.fence(opened_log, directory.high_watermarks.get(each.key, 0))
                        self.damaged[each.key] = found.reason
                except (CorruptLog, CorruptPartitionMetadata) as damage:
                    directory.damaged.add_unopened(topic, index)
                    self.damaged[each.key] = str(damage)
                except OSError as error:
                    failures[directory.path] = directory, error
            opened.append(each)
            if len(opened) % 100 == 0:
                log.info("opened %d of %d partitions", len(opened), found_count)
        return list(failures.values())

    def _is_wanted(self, opened: Log, wanted: Mapping[TopicPartition, Wanted]) -> bool:
        partition = wanted.get((opened.topic, opened.partition))
        return partition is not None and opened.topic_id in (None, partition.topic_id)

    def _unique(self) -> str:
        return self._environment.entropy(16).hex()


def _made(directory: LogDirectory | None, new: NewLog, now_ms: int) -> Log | OSError | None:
    """In a thread; the log, or why there is none."""
    if directory is None:
        return None
    try:
        return directory.make(*new, now_ms)
    except OSError as error:
        return error


def _renamed(fs: FileSystem, old: str, new: str) -> OSError | None:
    """In a thread; why it could not be."""
    try:
        fs.rename(old, new)
    except OSError as error:
        return error
    return None


def _of_directory(directory: LogDirectory, high_watermarks: HighWatermarks) -> dict[TopicPartition, int]:
    return {key: high_watermarks[key] for key in directory.logs if key in high_watermarks}


@contextmanager
def failing(directory: LogDirectory) -> Iterator[None]:
    """What the disk refuses in here takes the directory offline, unless it may pass; the caller goes on."""
    try:
        yield
    except OSError as error:
        directory.refused(error)
