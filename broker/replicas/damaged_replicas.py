"""Replicas of this broker whose logs are damaged: each is fenced alone, and fetched again from the partition's leader.

    sound ──a bad batch, at the start or in a read──▶ fenced ──out of the in-sync set, another replica leads──▶
    repairing ──the bad segments are set aside, the part before them is served again──▶ following, from there on
    following ──it has all committed records──▶ assigned to its directory again: from now on it may be in sync

For a fenced replica this broker answers requests with KAFKA_STORAGE_ERROR, leaves its files untouched, and assigns it
to the directory that Kafka calls LOST (AssignReplicasToDirs). The controller then takes leadership away and the replica
out of the in-sync set. The last replica in sync stays in the set, and the partition has no leader: no other replica has
all committed records, so the files wait for an operator. A start reads a log that is LOST from end to end, and serves
it if it is sound.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import Final

from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.replicas.directory_assignments import DirectoryAssignments
from moldau.broker.replicas.failed_directories import LogFailures
from moldau.broker.replicas.file_removal import FileRemoval
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.replicas.roles import ReplicaRoles
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.kraft.image.cluster import LOST_DIRECTORY
from moldau.kraft.image.topics import NO_LEADER
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.protocol.late_dataclass import dataclass
from moldau.replication.partition import Partition
from moldau.storage.directory.damaged_logs import RepairedLog
from moldau.storage.log.log import Log

log = logging.getLogger("moldau.replica")

RETRY_MS: Final = 5000
CAUGHT_UP_MS: Final = 100


class RepairState(Enum):
    """The states of a damaged replica: fenced, or under repair."""

    FENCED = auto()
    REPAIRING = auto()


@dataclass(slots=True)
class DamagedReplica:
    """A replica that is fenced or under repair."""

    topic: str
    topic_id: bytes
    index: int
    state: RepairState = RepairState.FENCED

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class DamagedReplicas:
    """The damaged replicas of this broker. Its methods are called on the event loop."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        cluster: ClusterView,
        settings: DynamicConfig,
        logs: LocalLogs,
        replicas: Replicas,
        roles: ReplicaRoles,
        flusher: Flusher,
        assignments: DirectoryAssignments,
        removal: FileRemoval,
        failures: LogFailures,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._spawn = spawn
        self._cluster = cluster
        self._settings = settings
        self._logs = logs
        self._replicas = replicas
        self._roles = roles
        self._flusher = flusher
        self._assignments = assignments
        self._removal = removal
        self._damaged: dict[tuple[bytes, int], DamagedReplica] = {}
        self.found_count = 0
        self.repaired_count = 0
        failures.subscribe_to_damage(self.on_damage_found)

    def __len__(self) -> int:
        return len(self._damaged)

    # Fencing

    def on_damage_found(self, damaged: Log, reason: str) -> None:
        """Fence a replica, because a read found a damaged batch in its log."""
        partition = self._replicas.get(damaged.topic, damaged.partition)
        if partition is None or partition.log is not damaged:
            return
        self._roles.take_offline(partition)
        self._flusher.forget_log(damaged)
        self._logs.fence(damaged, partition.high_watermark)
        self.fence(partition.topic, partition.topic_id, partition.index, reason)

    def fence(self, topic: str, topic_id: bytes, index: int, reason: str) -> None:
        """Note that a replica is damaged, and report it to the controller. `reason` is for the log."""
        self.found_count += 1
        self._damaged[topic_id, index] = DamagedReplica(topic, topic_id, index)
        log.error("the replica of %s-%d on this broker is damaged, and no longer served: %s", topic, index, reason)
        self._assignments.report(topic_id, index, LOST_DIRECTORY)
        assigned = self._cluster.image.topics.partition(topic, index)
        if assigned is not None and len(assigned.replicas) == 1:
            log.error(
                "%s-%d has no other replica, so it cannot be read or written: repair its files, then start this broker"
                " again. Until then they stay as they are",
                topic,
                index,
            )

    # Repairing

    def check_repairs(self) -> None:
        """Begin the repair of each damaged replica that may be repaired by the current metadata."""
        for topic_id, index in tuple(self._damaged):
            topic = self._cluster.image.topics.by_id.get(topic_id)
            if topic is not None:
                self.on_metadata_changed(topic_id, index, topic.partitions[index])

    def on_metadata_changed(self, topic_id: bytes, index: int, assigned: Assigned) -> None:
        """Begin the repair of a damaged replica if the changed metadata of its partition (`assigned`) permits it.
        Nothing happens if the replica is not damaged, or is being repaired.
        """
        damaged = self._damaged.get((topic_id, index))
        if damaged is not None and damaged.state is RepairState.FENCED and self._may_be_repaired(assigned):
            damaged.state = RepairState.REPAIRING
            self._spawn(self._repair(damaged))

    def _may_be_repaired(self, assigned: Assigned) -> bool:
        """Whether the replica may be repaired: another replica leads, and the controller would not elect this one."""
        node_id = self._node_id
        counts = (*assigned.isr, *assigned.eligible_leader_replicas, *assigned.last_known_elr)
        return node_id in assigned.replicas and assigned.leader not in (NO_LEADER, node_id) and node_id not in counts

    def _is_wanted(self, damaged: DamagedReplica) -> bool:
        return self._damaged.get((damaged.topic_id, damaged.index)) is damaged

    async def _repair(self, damaged: DamagedReplica) -> None:
        key = (damaged.topic, damaged.index)
        directory = self._logs.damaged_directory(key)
        if directory is None:
            return  # The directory has failed in the meantime.
        try:
            config = self._settings.topic_log_config(self._cluster.image, damaged.topic)
            repaired = await self._logs.repair(directory, key, config)
        except OSError as error:
            log.error("%s cannot be repaired: %s", damaged, error)
            directory.handle_error(error)
            self._loop.call_later(RETRY_MS / 1000, self._try_again, damaged)
            return
        directory.serve_log(repaired.log)
        await self._logs.checkpoint()  # The lowered high watermark is durable before anything new is written.
        if self._is_wanted(damaged):
            self._resume(damaged, repaired)
            return
        path = self._logs.delete(repaired.log)
        if path is not None:
            self._removal.remove_later([path], repaired.log.config.file_delete_delay_ms)

    def _try_again(self, damaged: DamagedReplica) -> None:
        damaged.state = RepairState.FENCED
        self.check_repairs()

    def _resume(self, damaged: DamagedReplica, repaired: RepairedLog) -> None:
        """Serve a replica again after its repair. It follows the current leader, from the end offset of the repaired
        log on.
        """
        self._damaged.pop((damaged.topic_id, damaged.index), None)
        self.repaired_count += 1
        if repaired.damage is None:
            log.warning("%s: all of its batches are sound now", damaged)
        else:
            log.warning(
                "%s: %s; its segments from offset %d on are kept in %s, and fetched again from offset %d on",
                damaged,
                repaired.damage.reason,
                repaired.damage.segment_base_offset,
                repaired.stray_path,
                repaired.log.end_offset,
            )
        self._serve_again(damaged, repaired.log)
        self._tell_when_caught_up((damaged.topic_id, damaged.index), repaired.log)

    def _serve_again(self, damaged: DamagedReplica, repaired: Log) -> None:
        """Serve the repaired log. The log directory of the replica is reported to the controller once the replica has
        caught up.
        """
        topic_id, index = damaged.topic_id, damaged.index
        try:
            repaired.assign_topic_id(topic_id)
        except OSError as error:
            repaired.fail_log(error)
        self._replicas.forget_offline(topic_id, index)
        if repaired.failure is not None:
            self._replicas.add_offline(damaged.topic, topic_id, index)
            return
        partition = Partition(damaged.topic, topic_id, index, repaired, self._logs.high_watermark(repaired))
        self._roles.serve(partition, self._cluster.image.topics.by_id[topic_id].partitions[index])

    def _tell_when_caught_up(self, key: tuple[bytes, int], repaired: Log) -> None:
        """Report the replica's directory to the controller once the replica has all committed records.

        The leader still has the replica's former end offset, and would propose it for the in-sync set at once. The
        controller refuses a replica whose directory is LOST, so the replica stays LOST until it has caught up.
        """
        partition, topic = self._replicas.find(key), self._cluster.image.topics.by_id.get(key[0])
        if partition is None or partition.log is not repaired or topic is None:
            return
        if partition.has_fetched and not partition.lag_behind_leader:
            self._assignments.report_log(partition, topic.partitions[key[1]])
        else:
            self._loop.call_later(CAUGHT_UP_MS / 1000, self._tell_when_caught_up, key, repaired)

    # Removed replicas

    def on_topic_deleted(self, topic_id: bytes) -> None:
        for key in [key for key in self._damaged if key[0] == topic_id]:
            self.on_replica_left(*key)

    def on_replica_left(self, topic_id: bytes, index: int) -> None:
        """Note that a replica was removed from this broker. If it is damaged and fenced, its files are removed."""
        damaged = self._damaged.pop((topic_id, index), None)
        if damaged is not None and damaged.state is RepairState.FENCED:
            path = self._logs.remove_damaged((damaged.topic, damaged.index))
            if path is not None:
                delay_ms = self._settings.config.integer("log.segment.delete.delay.ms")
                self._removal.remove_later([path], delay_ms)
