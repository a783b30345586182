"""Group requests through their handlers, answered as Apache Kafka 4.3.1 answered the same conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.group_conversation import MAIN, converse
from tests.support.group_node import GroupNode, image_with, over_the_wire

REPLIES = (Path(__file__).parent / "kafka_4_3_1_replies.txt").read_text().splitlines()[1:]
TOPIC_ID = bytes(range(16))


def on_a_node(scenario: Callable[[GroupNode], Awaitable[None]], *, has_offsets_topic: bool = True) -> None:
    """Run a scenario in a simulated process that coordinates groups."""
    topics = {"t": (TOPIC_ID, 2)}
    if has_offsets_topic:
        topics[GROUP_METADATA_TOPIC] = (bytes(range(1, 17)), 5)

    async def main(environment: SimulatedEnvironment) -> None:
        config = GroupConfig(initial_rebalance_delay_ms=0, offsets_topic_num_partitions=5)
        node = GroupNode(environment, config, image_with(topics))
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
        parked: dict[str, tuple[Pending[object], int]] = {}
        try:
            question = next(talk)
            while True:
                question = talk.send(await answer(node, parked, *question))
        except StopIteration as end:
            lines = end.value
        for index, (ours, theirs) in enumerate(zip(lines, REPLIES, strict=True)):
            assert ours == theirs, f"line {index + 2} of the replies, after {lines[max(0, index - 1)]}"

    on_a_node(scenario)


def test_settings_that_change_reach_the_machines_that_are_here_and_those_to_come() -> None:
    async def scenario(node: GroupNode) -> None:
        changed = node.groups.config._replace(consumer=ConsumerGroupSettings(assignment_interval_ms=7))
        assert len(node.groups.runners) == 5
        assert all(runner.shard.config != changed for runner in node.groups.runners)
        node.groups.configure(changed)
        assert all(runner.shard.config is changed for runner in node.groups.runners)
        node.coordinators.on_leadership_lost(node.partitions[0])
        node.gain(0)
        assert len(node.groups.runners) == 5
        assert all(runner.shard.config is changed for runner in node.groups.runners)

    on_a_node(scenario)


async def answer(
    node: GroupNode,
    parked: dict[str, tuple[Pending[object], int]],
    connection: str,
    request: object | None,
    version: int,
) -> object:
    """As a client would be answered, through a connection that waits or through one that does not."""
    if connection == MAIN:
        return await node.call(request, version)
    if request is not None:
        parked[connection] = node.ask(over_the_wire(request, version), version), version
        return None
    answered = node.loop.create_future()
    reply, asked_version = parked.pop(connection)
    reply.listen(answered.set_result)
    return over_the_wire(await answered, asked_version)


async def find(node: GroupNode, version: int, **request: object) -> FindCoordinatorResponse:
    response = await node.call(FindCoordinatorRequest(**request), version)  # type: ignore[arg-type]
    assert isinstance(response, FindCoordinatorResponse)
    return response


def test_the_coordinator_is_the_leader_of_the_partition_of_the_group() -> None:
    async def scenario(node: GroupNode) -> None:
        found = await find(node, 0, key="g")
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "localhost", 9092)
        found = await find(node, 3, key="g")
        assert (found.error_code, found.error_message) == (0, "NONE")
        several = await find(node, 6, coordinator_keys=["g", "h"])
        assert [(each.key, each.node_id, each.error_message) for each in several.coordinators] == [
            ("g", 1, ""),
            ("h", 1, ""),
        ]

    on_a_node(scenario)


def test_the_first_lookup_has_the_topic_created() -> None:
    async def scenario(node: GroupNode) -> None:
        found = await find(node, 2, key="g")
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (found.node_id, found.host, found.port) == (-1, "", -1)
        assert node.created == [GROUP_METADATA_TOPIC]

    on_a_node(scenario, has_offsets_topic=False)


def test_keys_of_an_unknown_type_have_no_coordinator() -> None:
    async def scenario(node: GroupNode) -> None:
        several = await find(node, 4, coordinator_keys=["a", "b"], key_type=7)
        assert [each.error_code for each in several.coordinators] == [ErrorCode.INVALID_REQUEST] * 2

    on_a_node(scenario)
