"""The topics in consumers' subscriptions: of any version the fields that all versions have."""

from __future__ import annotations

import pytest

from moldau.coordinator.classic.group import subscribed_topics
from moldau.protocol.compiler import encode
from moldau.protocol.records.offsets import ConsumerProtocolSubscription, TopicPartition
from tests.support.group_scribe import GroupScribe
from tests.support.group_stage import classic_groups
from tests.support.transcripts import Command


def subscription(version: int, *topics: str) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=b"data")
    if version >= 1:
        message.owned_partitions = [TopicPartition(topic="t", partitions=[0, 1])]
    return version.to_bytes(2, "big") + encode(message, version)


@pytest.mark.parametrize("version", range(4))
def test_all_versions_are_read(version: int) -> None:
    assert subscribed_topics([subscription(version, "t", "u"), subscription(0, "v")]) == frozenset({"t", "u", "v"})


@pytest.mark.parametrize("version", range(4))
def test_the_header_of_any_version_may_stand_over_a_body_of_version_0(version: int) -> None:
    """As some clients write it."""
    mixed = version.to_bytes(2, "big") + subscription(0, "t", "u")[2:]
    assert subscribed_topics([mixed]) == frozenset({"t", "u"})


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("rest", [b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\1\0\5t"])
def test_what_follows_the_fields_of_version_0_is_not_read(version: int, rest: bytes) -> None:
    assert subscribed_topics([version.to_bytes(2, "big") + subscription(0, "t")[2:] + rest]) == frozenset({"t"})


def test_a_later_version_begins_like_those_that_are_known() -> None:
    later = (9).to_bytes(2, "big") + subscription(3, "t")[2:] + b"more"
    assert subscribed_topics([later]) == frozenset({"t"})


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\1\0\5t", b"\xff\xff\xff\xff", b"\0\0\0\1\0\1t", b"\x7f\0\0\0"])
def test_garbage_is_no_subscription(version: int, body: bytes) -> None:
    """Topics that cannot be known leave every topic in use."""
    assert subscribed_topics([subscription(0, "t"), version.to_bytes(2, "big") + body]) is None


@pytest.mark.parametrize("nonsense", [b"", b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"])
def test_without_a_version_there_is_no_subscription(nonsense: bytes) -> None:
    assert subscribed_topics([subscription(0, "t"), nonsense]) is None


def test_a_group_without_members_is_subscribed_to_no_topic() -> None:
    assert subscribed_topics([]) == frozenset()


@pytest.mark.parametrize("version", range(4))
def test_offsets_of_other_topics_are_deleted_whatever_the_header_says(version: int) -> None:
    scribe = GroupScribe()
    for text in ("config initial_rebalance_delay_ms=0", "commit g t-0=1 u-0=1", "join g client=a v=3"):
        scribe.respond(Command(text))
    (member,) = classic_groups(scribe.shard)["g"].members.values()
    member.protocols[0].metadata = version.to_bytes(2, "big") + subscription(0, "t")[2:]
    scribe.respond(Command("wait 0"))
    (answer,) = (line for line in scribe.respond(Command("delete-offsets g topics=t-0,u-0 as=me")) if "tell" in line)
    assert answer == "tell me: NONE t-0:GROUP_SUBSCRIBED_TO_TOPIC u-0:NONE"
