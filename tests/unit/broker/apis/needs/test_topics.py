"""Requests about topics that name more than the client may see, or name it in two ways."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.topics import describe_topic_partitions
from moldau.broker.apis.topics.metadata import operations_on, visible_topics
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from moldau.protocol.messages.metadata import MetadataRequestTopic
from moldau.security.access import AclOperation, ResourceKind

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
NAMES = {"a": A, "b": B, "c": C}
BY_ID = {id_: SimpleNamespace(name=name, id=id_, partitions={}) for name, id_ in NAMES.items()}
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


def described(topics: Sequence[str], cursor: Cursor | None, *describes: str) -> dict[str | None, int]:
    """The topics of a page for a client that may describe some of them, each with its error."""
    image = SimpleNamespace(topics=TOPICS, cluster=None)
    config = SimpleNamespace(integer=lambda name: 2_000)
    services = SimpleNamespace(
        cluster=SimpleNamespace(image=image),
        config=config,
        long_requests=SimpleNamespace(answer=lambda context, answering: answering),
    )
    context = SimpleNamespace(access=Describes(*describes))
    asked = [TopicRequest(name=name) for name in topics]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=10, cursor=cursor)
    answering: Any = describe_topic_partitions.handle(cast("Any", services), cast("Any", context), request)
    with pytest.raises(StopIteration) as end:
        while True:
            next(answering)
    return {each.name: each.error_code for each in end.value.value.topics}


def test_a_client_goes_on_behind_a_topic_that_it_may_not_describe_any_more() -> None:
    cursor = Cursor(topic_name="b", partition_index=7)
    assert described([], cursor, "a", "b", "c") == {"b": 0, "c": 0}
    assert described([], cursor, "a", "c") == {"c": 0}
    assert described([], cursor, "a") == {}


def test_a_page_of_named_topics_tells_which_of_them_are_denied() -> None:
    assert described(["b", "a"], None, "a") == {"a": 0, "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert described([], None, "a") == {"a": 0}
