"""Scripted stories of a tiered partition whose leader or replicas change: what the metadata, the bucket and the leader
epochs of a follower are afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataWriter
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.replication.partition import Partition
from moldau.storage.tiered.layout import parse_key
from moldau.storage.tiered.metadata.records import RemoteChange
from moldau.storage.tiered.metadata.remote_segment import SegmentState
from tests.simulation.tiering.scripts import Stage, expected, told
from tests.support.node import Client, batch
from tests.support.tiered_node import TOPIC_SETTINGS

ONE_METADATA_PARTITION: Final[dict[str, Any]] = {"rlmm_config_remote_log_metadata_topic_num_partitions": 1}
SLOW_THREADS_NS: Final = 2_000_000_000
ABSENCES: Final = 3
SLOW_S: Final = 3.0
"""Of one object: a copy takes several times as long."""


async def assign(stage: Stage, replicas: Sequence[int]) -> None:
    """Ask for these replicas of the partition. The first one is the preferred leader."""
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    topic = ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[topic])
    answer = await stage.cluster.ask_any(request, 0)
    assert not answer.error_code
    assert not answer.responses[0].partitions[0].error_code


async def assigned(stage: Stage, replicas: Sequence[int]) -> None:
    """Wait until these are the replicas, and those that are up are in sync."""

    def is_done() -> bool:
        image = stage.broker(replicas[0]).image
        found = image.topics.partition("t", 0)
        in_sync = {each for each in replicas if stage.cluster.nodes[each].is_up}
        return found is not None and list(found.replicas) == list(replicas) and in_sync <= set(found.isr)

    await stage.cluster.until(is_done, f"the replicas are {replicas}", 120)


async def lead_by(stage: Stage, node_id: int) -> None:
    """Make a replica the preferred leader, and elect it."""
    replicas = [node_id, *(each for each in stage.cluster.nodes if each != node_id)]
    await assign(stage, replicas)
    await assigned(stage, replicas)
    election = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000)
    await stage.cluster.ask_any(election, 2)

    def leads() -> bool:
        return (partition := replica(stage, node_id)) is not None and partition.is_leader

    await stage.cluster.until(leads, f"node {node_id} leads", 60)


def replica(stage: Stage, node_id: int) -> Partition | None:
    broker = stage.cluster.nodes[node_id].broker
    return None if broker is None else broker.replicas.get("t", 0)


def a_follower_takes_all_leader_epochs_from_a_remote_segment(seed: int) -> None:
    """A follower is away while three leaders follow each other, and what they wrote is only remote. The follower begins
    behind that, and has the leader epochs that the leader has."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await lead_by(stage, 1)
        await stage.fill(2)
        cluster.nodes[3].kill()
        for node_id in (2, 1, 2):
            await stage.fill(6)
            await lead_by(stage, node_id)
        await stage.fill(6)
        await stage.copied()
        log = stage.leader().log
        await cluster.until(lambda: log.segments == [log.active], "local segments are deleted", 60)
        cluster.nodes[3].boot()
        await cluster.settled()

        def has_begun() -> bool:
            follower = replica(stage, 3)
            return follower is not None and follower.log.local_start_offset > 4

        await cluster.until(has_begun, "the follower begins behind what is only remote", 60)
        follower = replica(stage, 3)
        assert follower is not None
        end_offset = follower.log.end_offset
        entries = [each for each in log.epochs.entries if each.start_offset < end_offset]
        assert follower.log.epochs.entries == entries, (
            f"the follower begins with the leader epochs {follower.log.epochs.entries}, the leader has {entries}"
        )
        await cluster.until(lambda: follower.log.end_offset == log.end_offset, "the follower has caught up", 60)

    told(seed, story)


def a_replica_that_comes_back_reads_the_metadata_from_its_beginning(seed: int) -> None:
    """A broker gives its replica away, and gets one again, while it reads the same partition of the metadata topic for
    another topic. Then it leads, and serves everything."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.create("u", **TOPIC_SETTINGS)
        await lead_by(stage, 1)
        await stage.fill(10)
        await stage.copied()
        log = stage.leader().log
        await cluster.until(lambda: log.segments == [log.active], "local segments are deleted", 60)
        key = stage.followed(3).key
        await assign(stage, [1, 2])
        await cluster.until(lambda: stage.tiering(3).reader.get(key) is None, "the metadata is forgotten", 60)
        await assign(stage, [1, 2, 3])
        await cluster.until(lambda: stage.follows(3), "the metadata is read again", 60)
        await assigned(stage, [1, 2, 3])
        segments = stage.followed(1).remote_log.read_segments()
        assert stage.followed(3).remote_log.read_segments() == segments, "a broker lacks records of the metadata"
        await lead_by(stage, 3)
        assert await stage.read() == expected(stage.count)

    told(seed, story, properties=ONE_METADATA_PARTITION)


def replicas_come_back_while_the_metadata_of_others_is_read(seed: int) -> None:
    """The executor threads of a broker are slow, and records of the metadata come all the time. Meanwhile the broker
    gives replicas away, and gets them again."""

    async def story(stage: Stage) -> None:
        cluster, random = stage.cluster, Random(f"{seed}/replicas")
        await lead_by(stage, 1)
        await stage.fill(4)
        await stage.copied()
        await cluster.create("u", **TOPIC_SETTINGS)
        leader_id = await cluster.led("u")
        client = await cluster.connect(leader_id)
        absent, other = (2, 3) if leader_id == 3 else (3, 2)
        cluster.nodes[absent].host.offload_ns_max = SLOW_THREADS_NS
        key = stage.followed(absent).key
        writing = asyncio.get_running_loop().create_task(write(client, "u"))
        for _ in range(ABSENCES):
            await assign(stage, [1, other])
            await cluster.until(lambda: stage.tiering(absent).reader.get(key) is None, "the metadata is forgotten", 60)
            await asyncio.sleep(random.random() / 2)
            await assign(stage, [1, other, absent])
            await cluster.until(lambda: stage.follows(absent), "the metadata is read again", 60)
            await assigned(stage, [1, other, absent])
        writing.cancel()

    told(seed, story, properties=ONE_METADATA_PARTITION)


async def write(client: Client, topic: str) -> None:
    """Small batches, of which a few fill a segment, which is copied."""
    while True:
        answer = await client.produce(topic, batch("c", "d"))
        assert answer.error_code == 0
        await asyncio.sleep(0.1)


def a_deposed_leader_takes_its_copy_back(seed: int) -> None:
    """The leader's storage is slow, and another replica leads before the copy is there. The next leader deletes the
    remains, and what the former one stored after that is not left behind."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await lead_by(stage, 1)
        slow = cluster.nodes[1].host.storage_faults
        slow.slow, slow.slow_s = 1.0, SLOW_S
        await stage.fill(10)
        await cluster.until(lambda: any(parse_key(key) for key in stage.bucket.objects), "the copy has begun", 60)
        await lead_by(stage, 2)
        await asyncio.sleep(10 * SLOW_S)
        slow.slow = 0.0
        await stage.copied()
        assert await stage.read() == expected(stage.count)

    told(seed, story)


class HeldRecords:
    """Holds back the records of one state that a broker writes to the metadata topic, as a slow network would, until
    they are let go."""

    def __init__(self, writer: RemoteLogMetadataWriter, state: SegmentState) -> None:
        self._write = writer.write
        self._state = state
        self._is_open = asyncio.Event()
        self.count = 0
        """The number of records that were held."""
        vars(writer)["write"] = self._held

    async def _held(self, followed: FollowedRemoteLog, change: RemoteChange) -> None:
        if change.state is self._state and not self._is_open.is_set():
            self.count += 1
            await self._is_open.wait()
        await self._write(followed, change)

    def let_go(self) -> None:
        """Write the records that are held, and hold no others."""
        self._is_open.set()


def a_copy_that_was_finished_just_before_is_not_deleted_as_unfinished(seed: int) -> None:
    """A leader is deposed while its record that finishes a copy is on its way. The next leader finds the copy
    unfinished and deletes it, but that record arrives after the other one, and a replica has deleted its local segment
    in between. The copy stays: the replica may lead next, and has no other."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await lead_by(stage, 1)
        finished = HeldRecords(stage.tiering(1).writer, SegmentState.COPY_SEGMENT_FINISHED)
        await stage.fill(10)
        await cluster.until(lambda: finished.count > 0, "the copy is to be finished", 60)
        deleted = HeldRecords(stage.tiering(2).writer, SegmentState.DELETE_SEGMENT_STARTED)
        await lead_by(stage, 2)
        await cluster.until(lambda: deleted.count > 0, "the next leader is to delete it", 60)
        finished.let_go()

        def has_deleted() -> bool:
            return (partition := replica(stage, 3)) is not None and partition.log.local_start_offset > 0

        await cluster.until(has_deleted, "a replica deletes its local segment", 60)
        for faults in stage.faults():
            faults.is_away = True
        deleted.let_go()
        await asyncio.sleep(SLOW_S)
        for faults in stage.faults():
            faults.is_away = False
        await lead_by(stage, 3)
        await stage.copied()
        assert await stage.read() == expected(stage.count)

    told(seed, story)


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_follower_takes_all_leader_epochs_from_a_remote_segment,
    a_replica_that_comes_back_reads_the_metadata_from_its_beginning,
    replicas_come_back_while_the_metadata_of_others_is_read,
    a_deposed_leader_takes_its_copy_back,
    a_copy_that_was_finished_just_before_is_not_deleted_as_unfinished,
)
