"""Offsets of a transaction over a real log: an OffsetFetch of each version, before the marker, after a change of the
coordinator, and after the marker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.shards import partition_of
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitTransactionalOffsets, EndOffsetsTransaction
from moldau.coordinator.runtime.machine import TransactionEnd, Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.replication.partition import Partition
from moldau.replication.verification import guard_for_coordinator_batch
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.group_node import GroupNode, image_with

TOPIC_ID = bytes(range(16))
PRODUCER_ID = 7
PARTITIONS = 2
STABLE_VERSIONS = (7, 8, 9, 10)
UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


class Answer:
    """The token of a request to the machine."""

    def __init__(self) -> None:
        self.response: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def complete(self, response: object) -> None:
        self.response.set_result(response)


def coordinator_partition(node: GroupNode) -> Partition:
    return node.partitions[partition_of("g", PARTITIONS)]


async def commit(node: GroupNode, offset: int, producer_epoch: int = 0) -> int:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=PRODUCER_ID,
        producer_epoch=producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    answer = Answer()
    runner = node.groups.runner_of("g")
    assert not isinstance(runner, ErrorCode)
    now_ms = node.environment.wall_ms()
    guard = guard_for_coordinator_batch(
        coordinator_partition(node), PRODUCER_ID, producer_epoch, now_ms, supports_epoch_bump=False
    )
    runner.submit(CommitTransactionalOffsets(Waiter(answer, 3), request, guard))
    response = await answer.response
    assert isinstance(response, TxnOffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


async def end(node: GroupNode, *, is_commit: bool, coordinator_epoch: int = 0) -> object:
    answer = Answer()
    runner = node.groups.runner_of("g")
    assert not isinstance(runner, ErrorCode)
    marker = TransactionEnd(is_commit, coordinator_epoch)
    runner.submit(EndOffsetsTransaction(Waiter(answer, 1), PRODUCER_ID, 0, marker))
    return await answer.response


async def fetch(node: GroupNode, version: int, *, require_stable: bool) -> tuple[int, int]:
    """Offset and error of the partition."""
    if version < 8:
        old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        response = await node.call(OffsetFetchRequest(group_id="g", topics=old, require_stable=require_stable), version)
        assert isinstance(response, OffsetFetchResponse) and response.error_code == 0
        first = response.topics[0].partitions[0]
        return first.committed_offset, first.error_code
    topic = OffsetFetchRequestTopics(partition_indexes=[0])
    if version < 10:
        topic.name = "t"
    else:
        topic.topic_id = TOPIC_ID
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    response = await node.call(OffsetFetchRequest(groups=[group], require_stable=require_stable), version)
    assert isinstance(response, OffsetFetchResponse) and response.groups[0].error_code == 0
    found = response.groups[0].topics[0].partitions[0]
    return found.committed_offset, found.error_code


async def expect(node: GroupNode, *, visible: int, stable: tuple[int, int]) -> None:
    for version in STABLE_VERSIONS:
        assert await fetch(node, version, require_stable=False) == (visible, 0)
        assert await fetch(node, version, require_stable=True) == stable


async def change_coordinator(node: GroupNode) -> None:
    """The partition's leader resigns and leads again: its machine loads from the log."""
    partition = coordinator_partition(node)
    node.coordinators.on_leadership_lost(partition)
    node.coordinators.on_leadership_gained(partition)
    await node.loaded()


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_are_pending_until_the_marker(is_commit: bool) -> None:
    async def scenario(node: GroupNode) -> None:
        assert await commit(node, 4) == ErrorCode.NONE
        assert await end(node, is_commit=True) is ErrorCode.NONE
        await expect(node, visible=4, stable=(4, 0))
        assert await commit(node, 5) == ErrorCode.NONE
        await expect(node, visible=4, stable=UNSTABLE)
        await change_coordinator(node)
        await expect(node, visible=4, stable=UNSTABLE)
        assert await end(node, is_commit=is_commit, coordinator_epoch=1) is ErrorCode.NONE
        offset = 5 if is_commit else 4
        await expect(node, visible=offset, stable=(offset, 0))
        await change_coordinator(node)
        await expect(node, visible=offset, stable=(offset, 0))

    on_a_node(scenario)


def test_the_log_refuses_former_producers_and_former_coordinators() -> None:
    async def scenario(node: GroupNode) -> None:
        assert await commit(node, 4) == ErrorCode.NONE
        assert await end(node, is_commit=True, coordinator_epoch=3) is ErrorCode.NONE
        assert await end(node, is_commit=True, coordinator_epoch=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await commit(node, 5, producer_epoch=1) == ErrorCode.NONE
        assert await commit(node, 6, producer_epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(node, is_commit=True, coordinator_epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
        await expect(node, visible=4, stable=UNSTABLE)

    on_a_node(scenario)


def on_a_node(scenario: Callable[[GroupNode], Awaitable[None]]) -> None:
    """Run a scenario in a simulated process that coordinates groups."""

    async def main(environment: SimulatedEnvironment) -> None:
        image = image_with({"t": (TOPIC_ID, 1), GROUP_METADATA_TOPIC: (bytes(range(1, 17)), PARTITIONS)})
        node = GroupNode(environment, GroupConfig(offsets_topic_num_partitions=PARTITIONS), image)
        await node.start()
        await scenario(node)

    with World(1) as world:
        process = world.add_host("broker").boot(main)

        async def until_it_ends() -> None:
            await process

        world.run(until_it_ends())
