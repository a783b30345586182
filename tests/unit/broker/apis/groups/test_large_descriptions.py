"""The descriptions of large groups are made in slices, from what the machine knew when it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.coordinator import describe_groups
from moldau.broker.apis.parts import ANSWERED_AT_ONCE, LongRequests
from moldau.broker.network.route import RequestContext, Route, RouteBinding
from moldau.coordinator.consumer.describe import describe, not_described
from moldau.coordinator.consumer.events import DescribeConsumerGroup
from moldau.coordinator.group.description import GroupDescription
from moldau.kraft.features import GROUP_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from moldau.security.access import Unrestricted
from tests.support.consumer_stage import ConsumerStage

ROUTE = Route(
    69,
    "ConsumerGroupDescribe",
    0,
    1,
    lambda: RouteBinding(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, print),
)
MEMBERS = 20 * ANSWERED_AT_ONCE


class StillConnection:
    access = Unrestricted()

    def hold(self) -> None: ...

    async def hold_during(self, work: Coroutine[object, object, None]) -> None:
        await work


class Runner:
    """The machine of a group, which answers when the test says so."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def submit(self, event: object) -> None:
        self.events.append(event)


def group_of(count: int, made: list[int]) -> GroupDescription[DescribedGroup]:
    """`made` gets the number of each member when it is described."""

    def members() -> Iterator[Member]:
        for number in range(count):
            made.append(number)
            yield Member(
                member_id=f"m{number}",
                member_epoch=1,
                client_id="cli",
                client_host="/host",
                assignment=Assignment(topic_partitions=[]),
                target_assignment=Assignment(topic_partitions=[]),
            )

    empty = DescribedGroup(
        group_id="g", group_state="", group_epoch=1, assignment_epoch=1, assignor_name="", members=[]
    )
    return GroupDescription(empty, members())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_large_group_is_described_in_slices(is_late: bool) -> None:
    made: list[int] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", SimpleNamespace(precise_ns=lambda: 0)),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            cast("Any", None),
        )
        context = RequestContext(cast("Any", StillConnection()), ROUTE, 1, 0, None)
        runner = Runner()
        services = SimpleNamespace(
            long_requests=turns,
            cluster=SimpleNamespace(image=SimpleNamespace(features=SimpleNamespace(levels={GROUP_VERSION: 1}))),
            groups=SimpleNamespace(
                serves=lambda feature, levels: levels[feature] > 0,
                runner_of=lambda group_id: runner if group_id == "g" else ErrorCode.NOT_COORDINATOR,
            ),
        )
        request = ConsumerGroupDescribeRequest(group_ids=["g", "absent"], include_authorized_operations=False)
        reply = describe_groups(
            cast("Any", services), context, request, GROUP_VERSION, DescribeConsumerGroup, not_described
        )
        if is_late:
            await asyncio.sleep(0)
            assert not made, "nothing is described before it is committed"
        (event,) = runner.events
        event.waiter.token.complete(group_of(MEMBERS, made))
        assert len(made) == ANSWERED_AT_ONCE and not reply.is_complete
        await asyncio.gather(*tasks)
        assert reply.response is not None
        large, small = reply.response.groups
        assert [each.member_id for each in large.members] == [f"m{number}" for number in range(MEMBERS)]
        assert small.error_code == ErrorCode.NOT_COORDINATOR

    asyncio.run(story())


def test_a_description_is_of_the_time_of_the_request() -> None:
    """Members that come, and targets that change, while it is made are not in it."""
    stage = ConsumerStage()
    stage.topics(a=4)
    stage.join("m1", ["a"])
    stage.settle()
    before, description = stage.describe(), described_by(stage)
    stage.join("m2", ["a"])
    stage.settle()
    assert len(stage.describe().members) == 2
    whole = description.whole()
    assert whole == before and [each.member_id for each in whole.members] == ["m1"]
    (topic,) = whole.members[0].assignment.topic_partitions
    assert topic.partitions == [0, 1, 2, 3]


def described_by(stage: ConsumerStage) -> GroupDescription[DescribedGroup]:
    return describe(stage.group, stage.image, "uniform")
