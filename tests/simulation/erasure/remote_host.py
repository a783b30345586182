"""A process with the log eraser of a broker, one tiered log that it leads or follows, and what copies its segments to
remote storage and erases there. The records of `__remote_log_metadata` and the bucket outlive it.

Nothing here is a stand-in but that topic, whose writes may be lost, or succeed without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from moldau.broker.replicas.log_eraser import RemoteErasing
from moldau.broker.tiering.copying import SegmentCopier
from moldau.broker.tiering.erasing import RemoteEraser
from moldau.broker.tiering.remote_log_metadata import MetadataNotWritten
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.broker.tiering.rewriting import RemoteWorkplace, ReplacementWriter
from moldau.broker.tiering.traffic import COPY_QUOTA, RemoteTraffic, TransferQuota
from moldau.storage.log_config import LogConfig
from moldau.storage.tiered.index_cache import RemoteIndexCache
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import RemoteStorage
from moldau.testing.simulation.storage import SimulatedBucket, SimulatedStorage, StorageFaults
from moldau.testing.simulation.world import SimulatedEnvironment
from tests.simulation.compaction.host import ROOT, Process
from tests.support.cluster import CLUSTER_ID

NODE_ID: Final = 1
CACHE_SIZE: Final = 1 << 20
WRITE_S_MAX: Final = 0.3
FAILS: Final = 0.05
"""The probability that a write into the metadata topic fails, with or without its effect."""
PROPERTIES: Final = {
    "remote.log.manager.task.retry.backoff.max.ms": "1000",
    "moldau.tiered.superseded.retention.ms": "3000",
}


@dataclass(slots=True)
class RemoteSide:
    """What outlives a process."""

    random: Random
    faults: StorageFaults
    bucket: SimulatedBucket = field(default_factory=SimulatedBucket)
    changes: list[RemoteChange] = field(default_factory=list)
    """The records of the metadata topic."""


@dataclass(frozen=True, slots=True)
class OpenBucket:
    """What `OpenStorage` gives."""

    storage: RemoteStorage
    cluster_id: str = CLUSTER_ID
    is_checked: bool = True


class MetadataTopic:
    """The writer of the metadata topic, and its reader."""

    def __init__(self, remote: RemoteSide, followed: FollowedRemoteLog) -> None:
        self._remote = remote
        self._followed = followed
        for change in remote.changes:
            self._replay(change)
        followed.is_complete = True

    def _replay(self, change: RemoteChange) -> None:
        self._followed.remote_log.replay(change)
        self._followed.next_offset += 1

    def get(self, key: RemotePartition) -> FollowedRemoteLog | None:
        return self._followed if key == self._followed.key else None

    async def write(self, followed: FollowedRemoteLog, change: RemoteChange) -> None:
        random = self._remote.random
        await asyncio.sleep(random.random() * WRITE_S_MAX)
        fails = random.random() < FAILS
        if not fails or random.random() < 0.5:
            self._remote.changes.append(change)
            self._replay(change)
        if fails:
            raise MetadataNotWritten("the simulated write has no answer")


class RemoteProcess(Process):
    """One life of the broker. Its led log is tiered."""

    def __init__(
        self,
        environment: SimulatedEnvironment,
        config: LogConfig,
        properties: Mapping[str, str],
        waits: Random,
        remote: RemoteSide,
    ) -> None:
        self.remote = remote
        super().__init__(environment, config, PROPERTIES | dict(properties), waits)

    def _remote_erasing(self) -> RemoteErasing:
        environment, settings, random = self.environment, self.settings, self.remote.random
        now_s = lambda: environment.monotonic_ms() / 1000  # noqa: E731
        storage = SimulatedStorage(self.remote.bucket, random, asyncio.sleep, now_s, self.remote.faults)
        opened: Any = OpenBucket(storage)
        self.followed = FollowedRemoteLog(remote_partition(self.led), 0)
        topic: Any = MetadataTopic(self.remote, self.followed)
        quota = TransferQuota(COPY_QUOTA, settings, environment.monotonic_ms)
        self.copier = SegmentCopier(
            NODE_ID,
            settings,
            environment,
            self.tasks.spawn,
            self.replicas,
            opened,
            topic,
            quota,
            RemoteTraffic(),
        )
        indexes = RemoteIndexCache(environment.fs, ROOT, CACHE_SIZE, environment.offload, asyncio.Lock)
        indexes.clear()
        workplace = RemoteWorkplace(settings, environment, self.replicas, opened, indexes)
        replacements = ReplacementWriter(NODE_ID, environment, opened, topic)
        self.eraser = RemoteEraser(
            settings, environment, self.replicas, cast("Any", topic), workplace, self.copier, replacements
        )
        return self.eraser

    def look_at_remote(self) -> None:
        """What a broker does in each round of its tiered partitions."""
        log = self.led.log
        log.tiered_end_offset = self.followed.end_offset(log.epochs, log.end_offset)
        if self.led.is_leader:
            self.copier.begin_round(self.led, self.followed)
