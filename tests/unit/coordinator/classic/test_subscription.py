"""The topics in what consumers say of themselves."""

from __future__ import annotations

import pytest

from coordinator.classic.subscription import subscribed_topics
from protocol.compiler import encode
from protocol.records.consumer_protocol import ConsumerProtocolSubscription, TopicPartition


def subscription(version: int, *topics: str) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=b"data")
    if version >= 1:
        message.owned_partitions = [TopicPartition(topic="t", partitions=[0, 1])]
    return version.to_bytes(2, "big") + encode(message, version)


@pytest.mark.parametrize("version", range(4))
def test_all_versions_are_read(version: int) -> None:
    assert subscribed_topics([subscription(version, "t", "u"), subscription(0, "v")]) == frozenset({"t", "u", "v"})


def test_a_later_version_begins_like_the_last_one_known() -> None:
    later = (9).to_bytes(2, "big") + subscription(3, "t")[2:] + b"more"
    assert subscribed_topics([later]) == frozenset({"t"})


@pytest.mark.parametrize("nonsense", [b"", b"\0", b"\0\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\5t"])
def test_nobody_knows_the_topics_of_a_group_with_one_member_that_speaks_otherwise(nonsense: bytes) -> None:
    assert subscribed_topics([subscription(0, "t"), nonsense]) is None


def test_nobody_is_subscribed_to_nothing() -> None:
    assert subscribed_topics([]) == frozenset()
