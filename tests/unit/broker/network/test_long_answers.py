"""Which responses of the controller an executor thread encodes."""

from __future__ import annotations

import pytest

from moldau.broker.network.connection_resources import ENCODED_AT_ONCE_MAX, has_many
from moldau.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from moldau.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tests.support.node import Node, serve_and


def elections(topics: int, partitions: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic="t", partition_result=[PartitionResult(partition_id=index) for index in range(partitions)]
            )
            for _ in range(topics)
        ]
    )


@pytest.mark.parametrize(
    ("topics", "partitions", "is_long"),
    [
        (0, 0, False),
        (ENCODED_AT_ONCE_MAX, 0, False),
        (ENCODED_AT_ONCE_MAX + 1, 0, True),
        (1, ENCODED_AT_ONCE_MAX - 1, False),
        (1, ENCODED_AT_ONCE_MAX, True),
        (20, 30, True),
    ],
)
def test_the_elements_of_all_lists_count(topics: int, partitions: int, is_long: bool) -> None:
    assert has_many(elections(topics, partitions)) is is_long


def test_other_lists_count_too() -> None:
    results = [DeletableTopicResult(name="t") for _ in range(ENCODED_AT_ONCE_MAX + 1)]
    assert has_many(DeleteTopicsResponse(responses=results))


def test_a_long_answer_about_all_partitions_arrives_in_its_place() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for number in range(ENCODED_AT_ONCE_MAX + 1):
            await client.create(f"t{number}")
        client.send(ElectLeadersRequest(topic_partitions=None), 2)
        client.send(ElectLeadersRequest(topic_partitions=[]), 2)
        long = await client.reply()
        assert len(long.replica_election_results) == ENCODED_AT_ONCE_MAX + 1 and long.error_code == 0
        assert (await client.reply()).replica_election_results == []

    serve_and(story)
