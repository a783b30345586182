"""Requests about streams groups through their handlers, answered as Apache Kafka 4.3.1 answered the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from moldau.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from moldau.security.access import AclOperation, ResourceKind, Unrestricted
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.group_node import GroupNode, image_with
from tests.support.streams_conversation import JOIN, TOPICS, converse, heartbeat

REPLIES = (Path(__file__).parent / "kafka_4_3_1_streams_replies.txt").read_text().splitlines()[1:]
TOPIC_ID = bytes(range(16))
STREAMS = StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
DIVERGING = "# endpoint_without_topic"
"""The only part in which answers differ from Apache Kafka's on purpose (`partitions_by_endpoint`)."""


def on_a_node(scenario: Callable[[GroupNode], Awaitable[None]], *, level: int = 1) -> None:
    topics = {"t": (TOPIC_ID, 2), GROUP_METADATA_TOPIC: (bytes(range(1, 17)), 5)}
    for number, (name, count) in enumerate(TOPICS.items()):
        topics[name] = (bytes([number + 100]) * 16, count)

    async def main(environment: SimulatedEnvironment) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            offsets_topic_num_partitions=5,
            waiting_heartbeat_interval_ms=STREAMS.heartbeat_interval_ms,  # As Apache Kafka.
            streams=STREAMS,
        )
        node = GroupNode(environment, config, image_with(topics, streams_version=level))
        await node.start()
        await scenario(node)

    with World(1) as world:
        process = world.add_host("broker").boot(main)

        async def until_it_ends() -> None:
            await process

        world.run(until_it_ends())


def test_the_conversation_goes_as_with_kafka() -> None:
    async def scenario(node: GroupNode) -> None:
        talk = converse(TOPIC_ID)
        lines: list[str] = []
        try:
            question = next(talk)
            while True:
                _, request, version = question
                question = talk.send(await node.call(request, version))
        except StopIteration as end:
            lines = end.value
        different, section = [], ""
        for index, (ours, theirs) in enumerate(zip(lines, REPLIES, strict=True)):
            section = ours if ours.startswith("# ") else section
            if ours != theirs and section != DIVERGING:
                different.append(f"line {index + 2}, {section}\n  here  {ours}\n  Kafka {theirs}")
        assert not different, "\n".join(different)

    on_a_node(scenario)


WITH_STORE = Topology(
    epoch=0,
    subtopologies=[
        Subtopology(
            subtopology_id="0",
            source_topics=["in"],
            state_changelog_topics=[
                TopicInfo(name=name, partitions=0, replication_factor=0) for name in ("app-1", "app-2")
            ],
        )
    ],
)


async def join(node: GroupNode, version: int = 0, **fields: object) -> StreamsGroupHeartbeatResponse:
    request = heartbeat("app", "a", 0, **(JOIN | {"process_id": "P", "topology": WITH_STORE} | fields))
    response = await node.call(request, version)
    assert isinstance(response, StreamsGroupHeartbeatResponse)
    return response


def test_missing_internal_topics_are_created() -> None:
    async def scenario(node: GroupNode) -> None:
        response = await join(node)
        assert [(status.status_code, status.status_detail) for status in response.status or ()] == [
            (3, "Internal topics are missing: app-1, app-2")
        ]
        assert sorted(node.created) == ["app-1", "app-2"]

    on_a_node(scenario)


def test_offsets_of_tasks_are_taken_as_streams_4_4_sends_them() -> None:
    """They come with the first heartbeat of version 1, which Apache Kafka 4.3.1 does not serve."""

    async def scenario(node: GroupNode) -> None:
        offsets = [TaskOffset(subtopology_id="0", partition=0, offset=1)]
        answers = [
            (await join(node, version, task_offsets=each, task_end_offsets=each)).error_code
            for version in (0, 1)
            for each in ([], offsets)
        ]
        assert answers == [ErrorCode.INVALID_REQUEST] * 2 + [ErrorCode.NONE] * 2

    on_a_node(scenario)


def test_a_topic_that_could_not_be_created_is_told() -> None:
    async def scenario(node: GroupNode) -> None:
        node.failures = {"app-1": "no room"}
        response = await join(node)
        assert [status.status_detail for status in response.status or ()] == [
            "Internal topics are missing: app-1, app-2; Creation failed: app-1 (no room)."
        ]
        assert node.created == ["app-2"]

    on_a_node(scenario)


class Denying(Unrestricted):
    """Denies one operation on topics whose name begins with `app`, and on the cluster."""

    is_unrestricted = False  # type: ignore[misc]

    def __init__(self, operation: AclOperation) -> None:
        super().__init__()
        self.denied = operation

    def allows(self, operation: AclOperation, kind: ResourceKind, name: str, **_logs: bool) -> bool:
        return operation is not self.denied or (kind is not ResourceKind.CLUSTER and not name.startswith("app-"))


def test_without_the_right_to_create_topics_none_is_created() -> None:
    async def scenario(node: GroupNode) -> None:
        node.access = Denying(AclOperation.CREATE)
        response = await join(node)
        assert [status.status_detail for status in response.status or ()] == [
            "Internal topics are missing: app-1, app-2; Unauthorized to CREATE on topics app-1, app-2."
        ]
        assert not node.created

    on_a_node(scenario)


def test_without_the_right_to_describe_topics_a_topology_is_refused() -> None:
    async def scenario(node: GroupNode) -> None:
        await join(node)
        node.access = Denying(AclOperation.DESCRIBE)
        response = await join(node)
        assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        described = await node.call(
            StreamsGroupDescribeRequest(group_ids=["app"], include_authorized_operations=True), 0
        )
        assert isinstance(described, StreamsGroupDescribeResponse)
        (group,) = described.groups
        assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert group.topology is None and not group.members

    on_a_node(scenario)


def test_with_the_feature_off_nothing_is_served() -> None:
    async def scenario(node: GroupNode) -> None:
        assert (await join(node)).error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await node.call(
            StreamsGroupDescribeRequest(group_ids=["app"], include_authorized_operations=False), 0
        )
        assert isinstance(described, StreamsGroupDescribeResponse)
        assert [group.error_code for group in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    on_a_node(scenario, level=0)
