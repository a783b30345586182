"""Regular expressions of consumer groups: resolved in a thread, with the ACLs of the client that asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from moldau.broker.coordinators.regex_resolution import resolve_regexes
from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.regular_expressions import regex_fault
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.security.access import AclOperation, ResourceKind, Unrestricted
from tests.support.consumer_stage import stage_image
from tests.support.group_node import GroupNode
from tests.unit.broker.coordinators.test_consumer_conversation import on_a_node

T = TypeVar("T")
IMAGE = stage_image(7, {"app": 1, "apt": 1, "bus": 1}, {})


class Allowing:
    """An access that may describe some topics, and whose decisions nobody logs."""

    is_unrestricted = False

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = topics

    def allows(
        self, operation: AclOperation, kind: ResourceKind, name: str, *, logs_allowed: bool, logs_denied: bool
    ) -> bool:
        assert (operation, kind) == (AclOperation.DESCRIBE, ResourceKind.TOPIC)
        assert not logs_allowed and not logs_denied
        return name in self.topics


def resolved(client: object, *, is_open: bool = True) -> list[RegexesResolved]:
    reported: list[RegexesResolved] = []

    async def offload(work: Callable[[], T]) -> T:
        return work()

    command = ResolveRegexes("g", frozenset({"ap.*", "b.*"}), IMAGE, client)
    environment = cast("Any", SimpleNamespace(wall_ms=lambda: 5, offload=offload))
    reports = cast("Any", SimpleNamespace(is_open=is_open, report=reported.append))
    asyncio.run(resolve_regexes(environment, command, reports))
    return reported


def test_all_topics_that_match_are_reported_where_there_is_no_authorizer() -> None:
    (outcome,) = resolved(Unrestricted())
    assert outcome == RegexesResolved("g", {"ap.*": frozenset({"app", "apt"}), "b.*": frozenset({"bus"})}, 7, 5, 9)


def test_topics_that_the_client_may_not_describe_do_not_exist_for_it() -> None:
    (outcome,) = resolved(Allowing({"apt"}))
    assert (outcome.topics, outcome.size) == ({"ap.*": {"apt"}, "b.*": frozenset()}, 3)


def test_a_shard_that_is_gone_hears_nothing() -> None:
    assert resolved(Unrestricted(), is_open=False) == []


def beat(member_epoch: int, **fields: object) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=member_epoch)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_a_member_gets_the_topics_of_its_expression_on_a_node() -> None:
    async def scenario(node: GroupNode) -> None:
        joining = beat(0, rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_regex="t.*")
        joined = await node.call(joining, 1)
        assert isinstance(joined, ConsumerGroupHeartbeatResponse)
        assert (joined.error_code, joined.assignment and joined.assignment.topic_partitions) == (ErrorCode.NONE, [])
        await node.loaded()
        stayed = await node.call(beat(joined.member_epoch), 1)
        assert isinstance(stayed, ConsumerGroupHeartbeatResponse) and stayed.assignment is not None
        assert [topic.partitions for topic in stayed.assignment.topic_partitions] == [[0, 1]]

    on_a_node(scenario)


def test_the_machine_finds_the_expression_of_a_member_compiled() -> None:
    async def scenario(node: GroupNode) -> None:
        regex_fault.cache_clear()
        for regex, error in (("t.*", ErrorCode.NONE), ("(", ErrorCode.INVALID_REGULAR_EXPRESSION)):
            joining = beat(0, rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_regex=regex)
            joined = await node.call(joining, 1)
            assert isinstance(joined, ConsumerGroupHeartbeatResponse)
            assert joined.error_code == error
        assert (regex_fault.cache_info().misses, regex_fault.cache_info().hits) == (2, 2)

    on_a_node(scenario)


@pytest.mark.parametrize("level", [0, 1])
def test_both_requests_need_group_version_1(level: int) -> None:
    async def scenario(node: GroupNode) -> None:
        heard = await node.call(beat(1), 1)
        described = await node.call(
            ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1
        )
        assert isinstance(heard, ConsumerGroupHeartbeatResponse)
        assert isinstance(described, ConsumerGroupDescribeResponse)
        expected = ErrorCode.GROUP_ID_NOT_FOUND if level else ErrorCode.UNSUPPORTED_VERSION
        assert {heard.error_code, described.groups[0].error_code} == {expected}

    on_a_node(scenario, level)
