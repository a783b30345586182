"""The logs of this broker over all its log directories: opened at start, made, deleted, checkpointed, closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from broker.config.config import Config
from broker.environment import Environment
from storage.log import Log
from storage.log_config import LogConfig
from storage.log_directory import LogDirectory
from storage.log_paths import STRAY_SUFFIX
from storage.meta_properties import MetaProperties, disagreement, read_meta_properties
from storage.offset_checkpoint import TopicPartition

log = logging.getLogger("moldau.logs")

ConfigOfTopic = Callable[[str], LogConfig]
HighWatermarks = Mapping[TopicPartition, int]


class NotFormatted(Exception):
    """A log directory cannot be served as it is; the text says what to do."""


class Found(NamedTuple):
    """A partition's directory, before it is loaded."""

    directory: LogDirectory
    key: TopicPartition


class LocalLogs:
    """Everything here belongs to the loop; what blocks for long is offloaded. A failing directory raises OSError."""

    def __init__(self, config: Config, environment: Environment, properties: Mapping[str, MetaProperties]) -> None:
        self._environment = environment
        self._producer_expiration_ms = config.integer("producer.id.expiration.ms")
        self.properties = properties
        """By path, what meta.properties says: the same cluster and node everywhere."""
        self.directories = [LogDirectory.open(environment.fs, path, log.info) for path in config.log_dirs]
        self._by_path = {directory.path: directory for directory in self.directories}
        self._checkpointed: object = None
        self._writing: asyncio.Task[None] | None = None
        """The checkpoint on its way to the disk. It goes on when the job that began it is cancelled."""

    @property
    def cluster_id(self) -> str:
        return next(iter(self.properties.values())).cluster_id

    @property
    def directory_ids(self) -> list[bytes]:
        return [each.directory_id for each in self.properties.values() if each.directory_id is not None]

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch under which this broker last stopped cleanly, -1 where any directory does not know."""
        epochs = {directory.clean_broker_epoch for directory in self.directories}
        only = epochs.pop() if len(epochs) == 1 else None
        return -1 if only is None else only

    def high_watermark(self, opened: Log) -> int:
        """Up to where the log was committed when it was last checkpointed, within what the log now holds."""
        known = self._of(opened).high_watermarks.get((opened.topic, opened.partition), 0)
        return min(max(known, opened.log_start_offset), opened.end_offset)

    async def open_all(
        self, wanted: Mapping[TopicPartition, bytes], config_of: ConfigOfTopic
    ) -> dict[TopicPartition, Log]:
        """Open the wanted partitions (with their topic ids), set others aside, make those that are missing.

        Recovery runs beside the loop. Raises `CorruptLog` and OSError.
        """
        now_ms = self._environment.wall_ms()
        found = [
            Found(directory, (each.topic, each.partition))
            for directory in self.directories
            for each in directory.partitions()
        ]
        configs = {topic: config_of(topic) for topic in dict.fromkeys(key[0] for _, key in found)}
        if found:
            log.info("opening %d partitions%s", len(found), "" if self._was_clean else " after an unclean stop")
            await self._environment.offload(lambda: self._load(found, configs, now_ms))
        logs: dict[TopicPartition, Log] = {}
        for directory, key in found:
            if self._is_wanted(directory.logs[key], wanted):
                logs[key] = directory.logs[key]
            else:
                log.warning("%s-%d is not a partition of this broker any more: set aside as stray", *key)
                directory.set_aside(*key, self._unique(), STRAY_SUFFIX)
        for key, topic_id in wanted.items():
            if key not in logs:
                logs[key] = self.create(*key, topic_id, config_of(key[0]))
            else:
                logs[key].assign_topic_id(topic_id)
        return logs

    def create(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Log:
        """A new, empty log in the directory that holds the fewest."""
        directory = min(self.directories, key=lambda directory: len(directory.logs))
        return directory.create(topic, index, topic_id, config, self._environment.wall_ms())

    def delete(self, deleted: Log) -> str:
        """Take a log away at once; the path whose tree is to be removed later."""
        return self._of(deleted).delete(deleted.topic, deleted.partition, self._unique())

    def left_to_remove(self) -> list[str]:
        """Trees whose removal an earlier process did not finish."""
        return [path for directory in self.directories for path in directory.directories_to_remove()]

    async def checkpoint(self, high_watermarks: HighWatermarks) -> None:
        """Write what moved since the last checkpoint; nothing where nothing did."""
        state = {
            (directory.path, key): (each.recovery_point, each.log_start_offset, high_watermarks.get(key))
            for directory in self.directories
            for key, each in directory.logs.items()
        }
        if state == self._checkpointed:
            return
        for directory in self.directories:
            work = directory.checkpoint(_of_directory(directory, high_watermarks))
            self._writing = asyncio.get_running_loop().create_task(self._environment.offload(work.run))
            await asyncio.shield(self._writing)
        self._checkpointed = state

    async def close(self, broker_epoch: int, high_watermarks: HighWatermarks) -> None:
        """Write everything out; the next start believes the files."""
        if self._writing is not None:
            await asyncio.wait([self._writing])  # both write the same files
        now_ms = self._environment.wall_ms()
        for directory in self.directories:
            mine = _of_directory(directory, high_watermarks)
            is_clean = await self._environment.offload(partial(directory.close, now_ms, broker_epoch, mine))
            if not is_clean:
                log.error("%s was not closed cleanly: the next start will recover it", directory.path)

    @property
    def _was_clean(self) -> bool:
        return all(directory.was_clean for directory in self.directories)

    def _of(self, opened: Log) -> LogDirectory:
        return self._by_path[opened.directory.rpartition("/")[0]]

    def _load(self, found: list[Found], configs: Mapping[str, LogConfig], now_ms: int) -> None:
        for done, (directory, (topic, index)) in enumerate(found, 1):
            directory.load(topic, index, configs[topic], now_ms, log.info, self._producer_expiration_ms)
            if done % 100 == 0:
                log.info("opened %d of %d partitions", done, len(found))

    def _is_wanted(self, opened: Log, wanted: Mapping[TopicPartition, bytes]) -> bool:
        topic_id = wanted.get((opened.topic, opened.partition))
        return topic_id is not None and opened.topic_id in (None, topic_id)

    def _unique(self) -> str:
        return self._environment.entropy(16).hex()


def _of_directory(directory: LogDirectory, high_watermarks: HighWatermarks) -> dict[TopicPartition, int]:
    return {key: high_watermarks[key] for key in directory.logs if key in high_watermarks}


def read_properties(environment: Environment, config: Config) -> dict[str, MetaProperties]:
    """What the log directories say of themselves, by path. Raises `NotFormatted` and `InvalidMetaProperties`."""
    paths = dict.fromkeys((*config.log_dirs, config.metadata_log_dir))
    found = {path: read_meta_properties(environment.fs, path) for path in paths}
    missing = [path for path, properties in found.items() if properties is None]
    if missing:
        raise NotFormatted(
            f"{', '.join(missing)}: not formatted. First run `moldau format --standalone -c` with the same file"
        )
    properties = {path: each for path, each in found.items() if each is not None}
    problem = disagreement(list(properties.items()))
    if problem is not None:
        raise NotFormatted(problem)
    node_id = next(iter(properties.values())).node_id
    if node_id != config.node_id:
        raise NotFormatted(f"{config.log_dirs[0]} is of node {node_id}, the configuration says {config.node_id}")
    return properties
