"""A shard with its log: loading, timers, refusals and the loss of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.shard_runner import RunnerState
from moldau.coordinator.group.config import GroupConfig
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.group_node import GroupNode, image_with

TOPIC_ID = bytes(range(16))
CONFIG = GroupConfig(initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1, offsets_load_buffer_size=512)
Scenario = Callable[[GroupNode], Awaitable[None]]


def lives(*scenarios: Scenario, config: GroupConfig = CONFIG) -> None:
    """Run a process for each scenario, one after the other, on one disk."""
    image = image_with({"t": (TOPIC_ID, 2), GROUP_METADATA_TOPIC: (bytes(range(1, 17)), 1)})
    with World(1) as world:
        host = world.add_host("broker")

        async def all_lives() -> None:
            for scenario in scenarios:

                async def main(environment: SimulatedEnvironment, scenario: Scenario = scenario) -> None:
                    node = GroupNode(environment, config, image)
                    await node.start()
                    await scenario(node)

                await host.boot(main)
                host.kill()

        world.run(all_lives())


async def commit(node: GroupNode, offset: int, group: str = "g") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    response = await node.call(request, 9)
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


async def committed(node: GroupNode, group: str = "g") -> tuple[int, list[int]]:
    """The group's error, and its offsets in topic t."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    response = await node.call(request, 9)
    assert isinstance(response, OffsetFetchResponse)
    (answer,) = response.groups
    return answer.error_code, [part.committed_offset for topic in answer.topics for part in topic.partitions]


def join(group: str = "g", member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def stable_member(node: GroupNode) -> str:
    """A group of one, stable."""
    joined = await node.call(join(), 3)
    assert isinstance(joined, JoinGroupResponse)
    synced = await node.call(SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id), 3)
    assert isinstance(synced, SyncGroupResponse) and synced.error_code == 0
    return joined.member_id


async def heartbeat(node: GroupNode, member: str) -> int:
    response = await node.call(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 4)
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


async def state_of(node: GroupNode, group: str = "g") -> str:
    response = await node.call(DescribeGroupsRequest(groups=[group]), 6)
    assert isinstance(response, DescribeGroupsResponse)
    return response.groups[0].group_state


def test_a_new_process_finds_offsets_and_members_in_the_log() -> None:
    members: list[str] = []

    async def first(node: GroupNode) -> None:
        members.append(await stable_member(node))
        for offset in range(20):
            assert await commit(node, offset, "simple") == ErrorCode.NONE

    async def second(node: GroupNode) -> None:
        assert await committed(node, "simple") == (ErrorCode.NONE, [19])
        assert await state_of(node) == "Stable"
        assert await heartbeat(node, members[0]) == ErrorCode.NONE

    lives(first, second)


def test_a_compressed_log_is_read_as_well() -> None:
    async def first(node: GroupNode) -> None:
        assert await commit(node, 1) == ErrorCode.NONE
        assert await commit(node, 2) == ErrorCode.NONE
        log = node.partitions[0].log
        piece = log.read(0, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        assert not isinstance(piece, ErrorCode) and piece.slice is not None
        data = piece.slice.file.pread(piece.slice.size, piece.slice.position)
        assert [header.codec for _, header in iterate_batches(data)] == [1, 1]

    async def second(node: GroupNode) -> None:
        assert await committed(node) == (ErrorCode.NONE, [2])

    config = GroupConfig(offsets_topic_num_partitions=1, offsets_topic_compression_codec=1)
    lives(first, second, config=config)


def test_while_it_loads_requests_are_told_to_come_again() -> None:
    async def first(node: GroupNode) -> None:
        assert await commit(node, 7) == ErrorCode.NONE
        node.groups.on_leadership_lost(0)
        node.gain(0)
        (runner,) = node.groups.runners
        assert runner.state is RunnerState.LOADING
        assert await commit(node, 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await committed(node) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert await heartbeat(node, "anybody") == ErrorCode.NONE
        synced = await node.call(SyncGroupRequest(group_id="g", generation_id=1, member_id="x"), 3)
        assert isinstance(synced, SyncGroupResponse) and synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        listed = await node.call(ListGroupsRequest(), 5)
        assert isinstance(listed, ListGroupsResponse)
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await node.loaded()
        assert await committed(node) == (ErrorCode.NONE, [7])

    lives(first)


def test_a_member_that_is_silent_for_its_session_is_removed_by_the_timer() -> None:
    async def scenario(node: GroupNode) -> None:
        member = await stable_member(node)
        begin = node.loop.time()
        while await state_of(node) == "Stable":
            await pause(node, 1.0)
        assert 10 <= node.loop.time() - begin <= 11
        assert await heartbeat(node, member) == ErrorCode.UNKNOWN_MEMBER_ID

    lives(scenario)


async def pause(node: GroupNode, seconds: float) -> None:
    """Let virtual time pass."""
    passed = node.loop.create_future()
    node.loop.call_later(seconds, passed.set_result, None)
    await passed


def test_heartbeats_keep_a_member_in_for_ever() -> None:
    async def scenario(node: GroupNode) -> None:
        member = await stable_member(node)
        for _ in range(50):
            await pause(node, 9.0)
            assert await heartbeat(node, member) == ErrorCode.NONE

    lives(scenario)


def test_with_the_partition_go_all_who_wait() -> None:
    async def scenario(node: GroupNode) -> None:
        member = await stable_member(node)
        parked = node.ask(join(), 3)
        assert not parked.is_complete
        node.groups.on_leadership_lost(0)
        answers: list[object] = []
        parked.listen(answers.append)
        (answer,) = answers
        assert isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NOT_COORDINATOR
        assert await heartbeat(node, member) == ErrorCode.NOT_COORDINATOR
        assert await commit(node, 1) == ErrorCode.NOT_COORDINATOR

    lives(scenario)


def test_a_commit_waits_for_enough_replicas_until_its_time_is_over() -> None:
    async def scenario(node: GroupNode) -> None:
        partition = node.partitions[0]
        partition.min_insync_replicas = 2
        began_ms = node.environment.wall_ms()
        assert await commit(node, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert node.environment.wall_ms() - began_ms == CONFIG.offsets_commit_timeout_ms
        assert await committed(node) == (ErrorCode.NONE, [])
        waiting = asyncio.ensure_future(commit(node, 2))
        await asyncio.sleep(1)
        assert not waiting.done()
        partition.min_insync_replicas = 1
        partition.advance_high_watermark()
        assert await waiting == ErrorCode.NONE
        assert await committed(node) == (ErrorCode.NONE, [2])

    lives(scenario)


def test_a_group_begins_few_generations_while_too_few_replicas_are_in_sync() -> None:
    """Its member comes back after retry.backoff.ms, as clients do: 30 s hold 6 commit timeouts of 5 s."""

    async def scenario(node: GroupNode) -> None:
        joined = await node.call(join(), 3)
        assert isinstance(joined, JoinGroupResponse)
        member, first = joined.member_id, joined.generation_id
        node.partitions[0].min_insync_replicas = 2
        end_ms = node.environment.wall_ms() + 30_000
        while node.environment.wall_ms() < end_ms:
            sync = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=member)
            synced = await node.call(sync, 3)
            assert isinstance(synced, SyncGroupResponse)
            assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(0.1)
            joined = await node.call(join(member=member), 3)
            assert isinstance(joined, JoinGroupResponse) and joined.error_code == ErrorCode.NONE
        assert joined.generation_id - first <= 6
        partition = node.partitions[0]
        partition.min_insync_replicas = 1
        partition.advance_high_watermark()
        last = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=member)
        synced = await node.call(last, 3)
        assert isinstance(synced, SyncGroupResponse) and synced.error_code == ErrorCode.NONE
        assert await state_of(node) == "Stable"

    lives(scenario)


def test_a_log_that_makes_no_sense_is_not_coordinated() -> None:
    async def first(node: GroupNode) -> None:
        from moldau.protocol.record_builder import Record, build_batch

        nonsense = build_batch([Record(b"\0\2\0\1g", b"\0\x63")])
        assert node.partitions[0].append_internal(nonsense, node.environment.wall_ms()).error is ErrorCode.NONE

    async def second(node: GroupNode) -> None:
        (runner,) = node.groups.runners
        assert runner.state is RunnerState.FAILED
        assert await commit(node, 1) == ErrorCode.NOT_COORDINATOR
        listed = await node.call(ListGroupsRequest(), 5)
        assert isinstance(listed, ListGroupsResponse) and listed.error_code == ErrorCode.NONE

    lives(first, second)


def test_a_log_that_cannot_be_read_is_left_to_another_leader() -> None:
    async def scenario(node: GroupNode) -> None:
        assert await commit(node, 1) == ErrorCode.NONE
        partition = node.partitions[0]
        node.groups.on_leadership_lost(0)
        assert isinstance(node.environment.fs, SimulatedDisk)
        node.environment.fs.faults.read_error = 1.0
        node.coordinators.on_leadership_gained(partition)
        await node.loaded()
        assert partition.log.failure is not None
        assert await commit(node, 1) == ErrorCode.NOT_COORDINATOR

    lives(scenario)


def test_a_log_that_is_truncated_while_it_is_loaded_is_not_damaged() -> None:
    """Another broker has become the leader, and this one takes over that broker's log while it reads a piece."""

    async def scenario(node: GroupNode) -> None:
        assert await commit(node, 1) == ErrorCode.NONE
        partition, read = node.partitions[0], node.loop.create_future()

        async def offload(work: Callable[[], object]) -> object:
            await read
            return work()

        node.groups.on_leadership_lost(0)
        node.environment.offload = offload  # type: ignore[assignment, method-assign]
        node.coordinators.on_leadership_gained(partition)
        await pause(node, 1.0)
        node.groups.on_leadership_lost(0)
        partition.log.truncate_to(0, node.environment.wall_ms())
        read.set_result(None)
        await node.loaded()
        assert partition.log.failure is None

    lives(scenario)


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async def first(node: GroupNode) -> None:
        assert await commit(node, 1) == ErrorCode.NONE
        node.groups.on_topics_deleted(["t", "u"], [])
        assert await committed(node) == (ErrorCode.NONE, [])

    async def second(node: GroupNode) -> None:
        assert await committed(node) == (ErrorCode.NONE, [])

    lives(first, second)


def test_groups_of_several_partitions_are_deleted_at_once() -> None:
    async def scenario(node: GroupNode) -> None:
        for group in "abcdef":
            assert await commit(node, 1, group) == ErrorCode.NONE
        response = await node.call(DeleteGroupsRequest(groups_names=list("abcdefg")), 2)
        assert isinstance(response, DeleteGroupsResponse)
        errors = {result.group_id: result.error_code for result in response.results}
        assert errors == {**dict.fromkeys("abcdef", 0), "g": ErrorCode.GROUP_ID_NOT_FOUND}

    lives(scenario, config=GroupConfig(offsets_topic_num_partitions=4))


def test_ids_are_version_4_uuids() -> None:
    async def scenario(node: GroupNode) -> None:
        text = node.groups.fresh_id()
        assert [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]
        assert text[14] == "4" and text[19] in "89ab"
        assert node.groups.fresh_id() != text

    lives(scenario)


def test_a_broker_that_stops_lets_go_of_all_who_wait() -> None:
    async def scenario(node: GroupNode) -> None:
        await stable_member(node)
        parked = node.ask(join(), 3)
        node.coordinators.close()
        assert parked.is_complete
        assert node.groups.runners == []

    lives(scenario)
