"""Requests about topics that name more than the client may see, or name it in two ways."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.topics import describe_topic_partitions
from moldau.broker.apis.topics.metadata import operations_on, visible_topics
from moldau.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from moldau.protocol.messages.metadata import MetadataRequestTopic
from moldau.security.access import AclOperation, ResourceKind

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
NAMES = {"a": A, "b": B, "c": C}
BY_ID = {id_: SimpleNamespace(name=name, id=id_) for name, id_ in NAMES.items()}
TOPICS: Any = SimpleNamespace(ids=NAMES, by_id=BY_ID, by_name=lambda name: BY_ID.get(NAMES[name]))


class Describes:
    """The access of a client that may describe some topics."""

    is_unrestricted = False

    def __init__(self, *names: str) -> None:
        self._names = names

    def allows(self, operation: AclOperation, kind: ResourceKind, name: str, **_: bool) -> bool:
        return operation is AclOperation.DESCRIBE and kind is ResourceKind.TOPIC and name in self._names


def test_a_name_beside_an_id_tells_nothing_of_the_named_topic() -> None:
    access = cast("Any", Describes("a"))
    wishes = [MetadataRequestTopic(name="b", topic_id=A)]
    shown, denied = visible_topics(access, TOPICS, wishes, creates=False)
    assert (shown, denied) == (wishes, [])
    assert operations_on(access, TOPICS, shown) == {A: 1 << AclOperation.DESCRIBE}
    shown, denied = visible_topics(access, TOPICS, [MetadataRequestTopic(name="a", topic_id=B)], creates=False)
    assert not shown and [(each.name, each.topic_id) for each in denied] == [(None, B)]


def reached(cursor: Cursor | None, *describes: str) -> list[tuple[list[str], Cursor | None]]:
    """The names and cursors of the requests that the handler sees, of a client that asks for all topics."""
    seen: list[tuple[list[str], Cursor | None]] = []

    def answer(context: object, request: object) -> object:
        assert isinstance(request, DescribeTopicPartitionsRequest)
        seen.append(([each.name for each in request.topics], request.cursor))
        return None

    services = SimpleNamespace(cluster=SimpleNamespace(image=SimpleNamespace(topics=TOPICS)))
    context = SimpleNamespace(access=Describes(*describes))
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10, cursor=cursor)
    describe_topic_partitions.acl_rule(cast("Any", services), cast("Any", context), request, cast("Any", answer))
    return seen


def test_a_client_goes_on_behind_a_topic_that_it_may_not_describe_any_more() -> None:
    cursor = Cursor(topic_name="b", partition_index=7)
    assert reached(cursor, "a", "b", "c") == [(["a", "b", "c"], cursor)]
    assert reached(cursor, "a", "c") == [(["c"], None)]
    assert reached(cursor, "a") == []
