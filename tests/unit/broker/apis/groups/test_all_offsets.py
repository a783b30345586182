"""OffsetFetch of all topics: the response is made in slices, of the topics that exist and that the client may see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.groups import offset_fetch
from moldau.coordinator.group.records import CommittedOffset
from moldau.coordinator.offsets.offset_fetch import AllOffsets
from moldau.protocol.messages import offset_commit as committing
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.security.access import AclOperation, ResourceKind
from tests.support.coordinators import until_coordinated
from tests.support.node import Node, serve_and

COUNT = 200


@pytest.mark.parametrize("version", [5, 7, 8, 9, 10])
@pytest.mark.parametrize("require_stable", [False, True])
def test_many_offsets_become_results_in_slices(version: int, require_stable: bool) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", COUNT)
        await until_coordinated(client.ask, "g")
        partitions = [
            committing.OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in range(COUNT)
        ]
        topics = [committing.OffsetCommitRequestTopic(name="t", partitions=partitions)]
        await client.ask(committing.OffsetCommitRequest(group_id="g", member_id="", topics=topics), 8)
        long_requests = node.broker.services.long_requests
        before = long_requests.handled_count
        request = OffsetFetchRequest(
            group_id="g",
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
            require_stable=require_stable and version >= 7,
        )
        response: OffsetFetchResponse = await client.ask(request, version)
        found: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = [
            *response.topics,
            *(topic for group in response.groups for topic in group.topics),
        ]
        (topic,) = found
        assert [each.committed_offset for each in topic.partitions] == list(range(COUNT))
        assert getattr(topic, "topic_id", bytes(16)) == (topic_id if version >= 10 else bytes(16))
        assert long_requests.handled_count == before + 1

    serve_and(story)


@pytest.mark.parametrize("version", [5, 9, 10])
def test_topics_that_are_hidden_or_gone_are_left_out(version: int) -> None:
    def allows(operation: AclOperation, kind: ResourceKind, name: str, *, logs_denied: bool) -> bool:
        assert operation is AclOperation.DESCRIBE and kind is ResourceKind.TOPIC and not logs_denied
        return name != "hidden"

    ids = {"t": b"\1" * 16, "hidden": b"\2" * 16}
    by_name = {name: SimpleNamespace(id=topic_id) for name, topic_id in ids.items()}
    image = SimpleNamespace(topics=SimpleNamespace(by_name=by_name.get))
    services = SimpleNamespace(cluster=SimpleNamespace(image=image))
    context = SimpleNamespace(version=version, access=SimpleNamespace(allows=allows))
    offsets = {(name, index): CommittedOffset(5) for name in ("t", "hidden", "gone") for index in (0, 1)}
    answering: Any = offset_fetch._response(
        cast("Any", services), cast("Any", context), [AllOffsets("g", offsets, ())], [[]]
    )
    with pytest.raises(StopIteration) as end:
        while True:
            next(answering)
    response = end.value.value
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [topic.name for topic in topics] == (["t"] if version >= 10 else ["t", "gone"])
    assert all([each.partition_index for each in topic.partitions] == [0, 1] for topic in topics)
