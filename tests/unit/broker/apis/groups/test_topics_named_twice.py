"""OffsetCommit and OffsetDelete with a topic that is named twice: answers as Apache Kafka 4.3.1 was seen to give."""

from __future__ import annotations

import pytest

from moldau.protocol.messages import offset_commit as committing
from moldau.protocol.messages import offset_delete as deleting
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Node, serve_and

Named = tuple[str, list[tuple[int, int]]]
"""A topic, and of each partition its index and an offset, or in an answer its error."""
UNKNOWN_PARTITION, UNKNOWN_ID = 3, 100
MISSING_ID = bytes([7] * 16)
CASES: list[tuple[list[Named], list[Named]]] = [
    ([("t", [(0, 1)]), ("t", [(1, 2)])], [("t", [(0, 0)]), ("t", [(1, 0)])]),
    ([("t", [(0, 3), (0, 4)])], [("t", [(0, 0), (0, 0)])]),
    ([("t", [(0, 5)]), ("t", [(0, 6)])], [("t", [(0, 0)]), ("t", [(0, 0)])]),
    ([("t", [(0, 7)]), ("u", [(0, 8)]), ("t", [(1, 9)])], [("t", [(0, 0)]), ("u", [(0, 0)]), ("t", [(1, 0)])]),
    (
        [("t", [(0, 1), (7, 1)]), ("u", [(0, 2)]), ("t", [(8, 1), (1, 3)])],
        [("t", [(7, 3), (8, 3), (0, 0), (1, 0)]), ("u", [(0, 0)])],
    ),
    ([("no", [(0, 1)]), ("t", [(0, 5)]), ("no", [(1, 1)])], [("no", [(0, 3), (1, 3)]), ("t", [(0, 0)])]),
    ([("t", [(0, 1)]), ("t", [(9, 1)])], [("t", [(9, 3), (0, 0)])]),
    ([("t", [(9, 1)]), ("t", [(0, 1)])], [("t", [(9, 3), (0, 0)])]),
]
"""What is committed, and the answer. A topic is joined with its other results only if something of the request does not
exist; of a partition that is named twice the last offset counts."""


async def ready(node: Node) -> tuple[Client, dict[str, bytes]]:
    client = await node.connect()
    ids = {name: await client.create(name, 2) for name in "tu"}
    await until_coordinated(client.ask, "g")
    return client, ids | {"no": MISSING_ID}


async def offsets(client: Client) -> dict[tuple[str, int], int]:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    (group,) = (await client.ask(OffsetFetchRequest(groups=groups), 9)).groups
    return {
        (topic.name, each.partition_index): each.committed_offset for topic in group.topics for each in topic.partitions
    }


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_are_committed(version: int) -> None:
    async def story(node: Node) -> None:
        client, ids = await ready(node)
        names = {topic_id: name for name, topic_id in ids.items()}
        by_id = version >= 10
        for asked, expected in CASES:
            topics = [
                committing.OffsetCommitRequestTopic(
                    name="" if by_id else name,
                    topic_id=ids[name] if by_id else bytes(16),
                    partitions=[
                        committing.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                        for index, offset in listed
                    ],
                )
                for name, listed in asked
            ]
            request = committing.OffsetCommitRequest(group_id="g", member_id="", topics=topics)
            answer = await client.ask(request, version)
            told = [
                (
                    names[each.topic_id] if by_id else each.name,
                    [(one.partition_index, one.error_code) for one in each.partitions],
                )
                for each in answer.topics
            ]
            unknown = UNKNOWN_ID if by_id else UNKNOWN_PARTITION
            assert told == [
                (name, [(index, unknown) for index, _ in listed] if name == "no" else listed)
                for name, listed in expected
            ], asked
            latest = {(name, index): offset for name, listed in asked for index, offset in listed}
            kept = await offsets(client)
            assert {key: kept.get(key) for key in latest if key[0] != "no" and key[1] < 2} == {
                key: offset for key, offset in latest.items() if key[0] != "no" and key[1] < 2
            }, asked

    serve_and(story)


def test_offsets_are_deleted() -> None:
    async def story(node: Node) -> None:
        client, _ = await ready(node)
        topics = [
            deleting.OffsetDeleteRequestTopic(
                name=name,
                partitions=[deleting.OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in (("t", [0, 9]), ("u", [0]), ("t", [1, 8]))
        ]
        named = [
            committing.OffsetCommitRequestTopic(
                name=name, partitions=[committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            )
            for name in "tu"
        ]
        await client.ask(committing.OffsetCommitRequest(group_id="g", member_id="", topics=named), 8)
        answer = await client.ask(deleting.OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert [
            (each.name, [(one.partition_index, one.error_code) for one in each.partitions]) for each in answer.topics
        ] == [("t", [(9, 3), (8, 3), (0, 0), (1, 0)]), ("u", [(0, 0)])]
        assert await offsets(client) == {}

    serve_and(story)
