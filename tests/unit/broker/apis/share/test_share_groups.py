"""A share group on one broker from its first heartbeat to acknowledged records."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_share_group_offsets as alter_offsets
from moldau.protocol.messages import delete_share_group_offsets as delete_offsets
from moldau.protocol.messages import describe_share_group_offsets as describe_offsets
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.node import Client, Node, batch, serve_and
from tests.support.share_consumer import ACCEPT, GROUP, SETTINGS, Consumer, Taken


async def beat(client: Client, epoch: int, *topics: str, member_id: str = "m") -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    while True:
        answer = await client.ask(request, 1)
        if answer.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            return answer
        await asyncio.sleep(0.1)


async def described(client: Client, group_id: str) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=True)
    answer = await client.ask(request, 1)
    (group,) = answer.groups
    return group


def test_a_member_gets_its_partitions_and_their_records() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[off]), 1)).error_code == ErrorCode.NONE
        assert (await beat(client, 0, "t")).error_code == ErrorCode.UNSUPPORTED_VERSION
        update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == ErrorCode.NONE
        topic_id = await client.create("t", 1)
        await client.produce("t", batch("before"))
        node.broker.services.topics.create_internal(node.broker.coordinators.groups.topic)
        joined = await beat(client, 0, "t")
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
        epoch = 2
        while True:
            answer = await beat(client, epoch)
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            await asyncio.sleep(0.5)
        (assigned,) = answer.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic_id, [0])
        consumer = Consumer(client, topic_id)
        assert await consumer.take(wait_ms=1_000) == [Taken(0, [], [], 0)], "a group begins at the latest offset"
        await client.produce("t", batch("after"))
        assert await consumer.take(wait_ms=1_000) == [Taken(0, [b"after"], [(1, 1, 1)], 0)]
        assert await consumer.acknowledge(1, 1, ACCEPT) == ErrorCode.NONE
        group = await described(client, GROUP)
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        assert group.members[0].assignment.topic_partitions[0].topic_name == "t"
        listed = await client.ask(ListGroupsRequest(types_filter=["share"]), 5)
        assert [(each.group_id, each.group_type, each.protocol_type) for each in listed.groups] == [
            (GROUP, "share", "share")
        ]
        assert (await beat(client, -1)).member_epoch == -1
        assert (await described(client, GROUP)).group_state == "Empty"
        assert (await described(client, "other")).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    serve_and(story, **SETTINGS)


async def offsets(client: Client, topics: Any = None) -> dict[tuple[str, int], tuple[int, int]]:
    """(start offset, lag) by partition."""
    group = describe_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
    answer = await client.ask(describe_offsets.DescribeShareGroupOffsetsRequest(groups=[group]), 1)
    (found,) = answer.groups
    assert found.error_code == ErrorCode.NONE
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in found.topics
        for each in topic.partitions
    }


async def alter(client: Client, *wanted: tuple[str, int, int]) -> list[int]:
    """Set start offsets. Returns the error of the whole, or those of the partitions."""
    topics = [
        alter_offsets.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                alter_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            ],
        )
        for name, index, offset in wanted
    ]
    answer = await client.ask(alter_offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)
    if answer.error_code:
        return [answer.error_code]
    return [each.error_code for topic in answer.responses for each in topic.partitions]


async def delete(client: Client, *names: str) -> list[int]:
    topics = [delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    answer = await client.ask(delete_offsets.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics), 0)
    return [answer.error_code] if answer.error_code else [each.error_code for each in answer.responses]


def test_offsets_are_described_set_and_deleted() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
        await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        topic_id = await client.create("t", 1)
        for value in "abcd":
            await client.produce("t", batch(value))
        node.broker.services.topics.create_internal(node.broker.coordinators.groups.topic)
        await beat(client, 0, "t", member_id="n")
        assert await alter(client, ("t", 0, 1)) == [ErrorCode.NON_EMPTY_GROUP]
        assert await delete(client, "t") == [ErrorCode.NON_EMPTY_GROUP]
        await beat(client, -1, member_id="n")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        several = await alter(client, ("t", 0, 1), ("t", 7, 1), ("t", -1, 1), ("u", 0, 1))
        assert several == [0, unknown, unknown, unknown]
        assert await offsets(client) == {("t", 0): (1, 3)}
        consumer = Consumer(client, topic_id)
        assert await consumer.take(wait_ms=1_000) == [Taken(0, [b"b", b"c", b"d"], [(1, 3, 1)], 0)]
        assert await consumer.acknowledge(1, 2, ACCEPT) == ErrorCode.NONE
        assert await offsets(client) == {("t", 0): (1, 1)}, "the start offset is stored with the next change"
        named = [describe_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name="u", partitions=[0])]
        assert await offsets(client, named) == {("u", 0): (-1, -1)}
        await consumer.fetch(epoch=-1)
        assert await alter(client, ("t", 0, 0)) == [0]
        again = Consumer(client, topic_id)
        assert [each.acquired for each in await again.take(wait_ms=1_000)] == [[(0, 3, 1)]]
        assert await delete(client, "t", "u") == [0, unknown]
        assert await alter(client, ("t", 0, 0)) == [0]
        gone = await client.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        assert [each.error_code for each in gone.results] == [ErrorCode.NONE]
        runner = node.broker.coordinators.share_coordinator.runner_of(ShareKey(GROUP, topic_id, 0))
        assert not isinstance(runner, ErrorCode)
        assert [*runner.shard.states()] == [], "the share coordinator has forgotten the group"
        assert (await beat(client, 0, "t", member_id="n")).member_epoch == 2
        await beat(client, -1, member_id="n")
        assert await offsets(client) == {("t", 0): (-1, -1)}, "a new group, which no consumer has used yet"
        assert await delete(client, "t") == [0]
        assert await offsets(client) == {}
        assert await delete(client, "t") == [unknown]

    serve_and(story, **SETTINGS)


def test_an_empty_group_id_is_refused_in_the_words_of_apache_kafka() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        partition = alter_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        topic = alter_offsets.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
        deleted = delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
        for request in (
            alter_offsets.AlterShareGroupOffsetsRequest(group_id="", topics=[topic]),
            delete_offsets.DeleteShareGroupOffsetsRequest(group_id="", topics=[deleted]),
        ):
            answer = await client.ask(request, 0)
            said = (answer.error_code, answer.error_message)
            assert said == (ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")

    serve_and(story, **SETTINGS)


def test_an_empty_group_id_is_described_as_by_apache_kafka() -> None:
    """Observed of 4.3.1: the state of the coordinator counts for offsets, and not for a description."""

    async def story(node: Node) -> None:
        client = await node.connect()
        wanted = describe_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="", topics=None)
        offsets = describe_offsets.DescribeShareGroupOffsetsRequest(groups=[wanted])
        (before,) = (await client.ask(offsets, 1)).groups
        said = (ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
        assert (before.error_code, before.error_message) == said
        group = await described(client, "g")
        assert (group.error_code, group.error_message) == said
        assert (await described(client, "")).error_code == ErrorCode.INVALID_GROUP_ID
        await client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0), 4)
        await beat(client, 0, "t")
        (after,) = (await client.ask(offsets, 1)).groups
        assert (after.error_code, after.error_message, after.topics) == (0, None, [])
        assert (await described(client, "")).error_code == ErrorCode.INVALID_GROUP_ID

    serve_and(story, **SETTINGS)


def test_a_deleted_topic_is_forgotten_by_the_group_and_by_the_share_coordinator() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in "tu":
            await client.create(name, 1)
        node.broker.services.topics.create_internal(node.broker.coordinators.groups.topic)
        await beat(client, 0, "t", "u")
        state = node.broker.coordinators.share_coordinator
        while len(await offsets(client)) < 2:
            await asyncio.sleep(0.1)
        kept = [(key.topic_id, key.partition) for runner in state.shards.runners for key, _ in runner.shard.states()]
        assert len(kept) == 2
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=10_000)
        assert (await client.ask(deletion, 6)).responses[0].error_code == ErrorCode.NONE
        await asyncio.sleep(0.5)
        assert await offsets(client) == {("u", 0): (-1, -1)}
        (left,) = [key for runner in state.shards.runners for key, _ in runner.shard.states()]
        (runner,) = (each for each in node.broker.coordinators.groups.runners if each.shard.group(GROUP))
        group = runner.shard.group(GROUP)
        assert isinstance(group, ShareGroup)
        assert [*group.state_topics.initialized] == [left.topic_id]

    serve_and(story, **SETTINGS)
