"""Share groups in every state, asked every request, answer as Apache Kafka 4.3.1 answered the same conversation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.node import Node, serve_and
from tests.support.share_consumer import SETTINGS
from tests.support.share_group_conversation import DIVERGING, PAUSE, PAUSE_S, converse
from tests.unit.broker.coordinators.test_consumer_conversation import blocks

pytestmark = pytest.mark.slow

REPLIES = (Path(__file__).parent / "kafka_4_3_1_share_group_replies.txt").read_text().splitlines()[1:]


def test_the_conversation_goes_as_with_kafka() -> None:
    lines: list[str] = []

    async def story(node: Node) -> None:
        client = await node.connect(client_id="cli")
        talk, answer = converse(), None
        try:
            asked = next(talk)
            while True:
                if asked is PAUSE:
                    await asyncio.sleep(PAUSE_S)
                else:
                    answer = await client.ask(*asked)
                asked = talk.send(answer)
        except StopIteration as end:
            lines.extend(end.value)

    serve_and(
        story,
        offsets_topic_num_partitions=1,
        group_share_assignment_interval_ms=0,
        moldau_group_waiting_heartbeat_interval_ms=5_000,  # As Apache Kafka.
        **SETTINGS,
    )
    asked, expected = blocks(lines), blocks(REPLIES)
    assert asked.keys() == expected.keys()
    assert len(asked) > 500
    differing = {question for question in asked if asked[question] != expected[question]}
    for question in sorted(differing - DIVERGING):
        print(question, *("ours:", *asked[question], "theirs:", *expected[question]), sep="\n")
    assert differing == DIVERGING
