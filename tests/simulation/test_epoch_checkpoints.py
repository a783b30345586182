"""The leader-epoch-checkpoint names each epoch of the batches beside it: the next process, Apache Kafka on the same
directory, and readers of the files compare replicas by it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart, LeaderEpochs
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import batch, produce_request

if TYPE_CHECKING:
    from moldau.storage.log.log import Log

SOON_S = 0.5
"""Far less than the time until the next flush of a log, or the next checkpoint of its offsets."""


def log_of(node: ClusterNode) -> Log:
    assert node.broker is not None
    partition = node.broker.replicas.get("t", 0)
    assert partition is not None
    return partition.log


async def write(cluster: Cluster, leader_id: int) -> None:
    client = await cluster.connect(leader_id)
    reply = await client.ask(produce_request("t", batch("v"), acks=-1), 9)
    assert not reply.responses[0].partition_responses[0].error_code
    client.close()


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_a_follower_that_dies_leaves_the_epochs_of_its_batches(is_power_cut: bool) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=1)
        first_id = await cluster.led("t")
        await write(cluster, first_id)
        cluster.nodes[first_id].kill()
        others = [node for node in cluster.nodes.values() if node.id != first_id]
        while (leader_id := await cluster.led("t")) == first_id:
            await asyncio.sleep(0.1)
        follower = next(node for node in others if node.id != leader_id)
        await write(cluster, leader_id)
        copy = log_of(follower)
        await cluster.until(lambda: copy.end_offset == 2, "the follower has the batch of the new epoch")
        await asyncio.sleep(SOON_S)
        expected = list(copy.epochs.entries)
        assert [entry.start_offset for entry in expected] == [0, 1] and copy.recovery_point == 0
        if is_power_cut:
            follower.crash()
        else:
            follower.kill()
            assert LeaderEpochs.load(follower.host.disk, copy.directory).entries == expected
        follower.boot()
        await cluster.until(
            lambda: follower.broker is not None and not follower.broker.readiness.not_ready(), "it serves again"
        )
        await cluster.until(lambda: log_of(follower).epochs.entries == expected, "it has both epochs")

    with Cluster(5) as cluster:
        cluster.live(story)


def test_a_leader_has_its_epoch_on_the_disk_soon_after_the_first_record() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", replication_factor=1)
        leader = cluster.nodes[await cluster.led("t")]
        await asyncio.sleep(SOON_S)
        log = log_of(leader)
        assert LeaderEpochs.load(leader.host.disk, log.directory).entries == [], (
            "a start drops an epoch without batches"
        )
        await write(cluster, leader.id)
        await asyncio.sleep(SOON_S)
        assert log.recovery_point == 0
        leader.kill()
        assert LeaderEpochs.load(leader.host.disk, log.directory).entries == [EpochStart(0, 0)]

    with Cluster(5, nodes=1) as cluster:
        cluster.live(story)
