"""Consumer groups in every state, asked every request, answer as Apache Kafka 4.3.1 answered the same conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.kraft.image.metadata_image import MetadataDelta, Provenance
from moldau.protocol.records.metadata import FeatureLevelRecord
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.consumer_conversation import DIVERGING, converse
from tests.support.group_node import GroupNode, image_with

REPLIES = (Path(__file__).parent / "kafka_4_3_1_consumer_replies.txt").read_text().splitlines()[1:]
TOPIC_ID = bytes(range(16))
TOPICS = {"t": (TOPIC_ID, 2), GROUP_METADATA_TOPIC: (bytes(range(1, 17)), 5)}


def on_a_node(scenario: Callable[[GroupNode], Awaitable[None]], level: int = 1) -> None:
    """Run a scenario in a simulated process that coordinates groups, at a level of group.version."""

    async def main(environment: SimulatedEnvironment) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            offsets_topic_num_partitions=5,
            waiting_heartbeat_interval_ms=ConsumerGroupSettings().heartbeat_interval_ms,  # As Apache Kafka.
            consumer=ConsumerGroupSettings(assignment_interval_ms=0),
        )
        delta = MetadataDelta(image_with(TOPICS))
        delta.replay(FeatureLevelRecord(name="group.version", feature_level=level))
        node = GroupNode(environment, config, delta.apply(Provenance(2, 0, 0)))
        await node.start()
        await scenario(node)

    with World(1) as world:
        process = world.add_host("broker").boot(main)

        async def until_it_ends() -> None:
            await process

        world.run(until_it_ends())


def test_the_conversation_goes_as_with_kafka() -> None:
    lines: list[str] = []

    async def scenario(node: GroupNode) -> None:
        talk = converse(TOPIC_ID)
        try:
            _, request, version = next(talk)
            while True:
                _, request, version = talk.send(await node.call(request, version))
        except StopIteration as end:
            lines.extend(end.value)

    on_a_node(scenario)
    asked = blocks(lines)
    expected = blocks(REPLIES)
    assert asked.keys() == expected.keys()
    assert len(asked) > 500
    differing = {question for question in asked if asked[question] != expected[question]}
    for question in sorted(differing - DIVERGING.keys()):
        print(question, *("ours:", *asked[question], "theirs:", *expected[question]), sep="\n")
    assert differing == DIVERGING.keys()


def blocks(lines: list[str]) -> dict[str, list[str]]:
    """The lines of the answers by the line of the question."""
    found: dict[str, list[str]] = {}
    question = ""
    for line in lines:
        if line.startswith(" "):
            found[question].append(line)
        else:
            question = line
            found[question] = []
    return found
