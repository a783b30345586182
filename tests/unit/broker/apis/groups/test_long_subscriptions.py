"""A ConsumerGroupHeartbeat with a long subscription: the ACLs and the metadata of its topics are read in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.groups import consumer_group_heartbeat
from moldau.broker.apis.parts import ANSWERED_AT_ONCE, LongRequests
from moldau.broker.coordinators.image import GroupsImage
from moldau.broker.network.route import RequestContext, Route, RouteBinding
from moldau.broker.runtime.pending import Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.security.access import Unrestricted
from tests.support.node import Node, serve_and

ROUTE = Route(
    68,
    "ConsumerGroupHeartbeat",
    0,
    1,
    lambda: RouteBinding(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, print),
)


class StillConnection:
    def __init__(self, hidden: str) -> None:
        self.access = Hiding(hidden)

    def hold(self) -> None: ...

    async def hold_during(self, work: Coroutine[object, object, None]) -> None:
        await work


class Hiding(Unrestricted):
    """Everything is allowed, save one name."""

    def __init__(self, hidden: str) -> None:
        super().__init__()
        self.hidden = hidden
        self.asked: list[str] = []

    def allows(self, operation: object, kind: object, name: str, **_: bool) -> bool:
        self.asked.append(name)
        return name != self.hidden


def told(count: int, hidden: str) -> tuple[object, int, int]:
    """The answer to a subscription to so many topics, and about how many the ACLs were asked at once, and in all."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=[f"t{number}" for number in range(count)]
    )

    async def story() -> tuple[object, int, int]:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        turns = LongRequests(
            cast("Any", SimpleNamespace(precise_ns=lambda: 0)),
            loop,
            lambda work, name="": tasks.append(loop.create_task(cast("Any", work))),
            cast("Any", None),
        )
        services = SimpleNamespace(long_requests=turns)
        connection = StillConnection(hidden)
        asked = connection.access.asked
        context = RequestContext(cast("Any", connection), ROUTE, 1, 0, None)
        rule = consumer_group_heartbeat.API.needs
        answer = rule(cast("Any", services), context, request, lambda context, request: "handled")
        at_once = len(asked)
        await asyncio.gather(*tasks)
        if isinstance(answer, Pending):
            replies: list[object] = []
            answer.listen(replies.append)
            (answer,) = replies
        return answer, at_once, len(asked)

    return asyncio.run(story())


def test_the_acls_of_a_short_subscription_are_asked_at_once() -> None:
    """First about the group."""
    assert told(5, "") == ("handled", 1 + 5, 1 + 5)
    assert told(0, "") == ("handled", 1, 1)


def test_the_acls_of_a_long_subscription_are_asked_in_slices() -> None:
    assert told(1_000, "") == ("handled", ANSWERED_AT_ONCE, 1 + 1_000)


def test_a_topic_that_the_client_may_not_describe_refuses_the_request_in_a_later_slice_too() -> None:
    refusal, _, asked = told(1_000, "t500")
    assert isinstance(refusal, ConsumerGroupHeartbeatResponse)
    assert (refusal.error_code, asked) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1 + 501)
    refusal, _, asked = told(5, "g")
    assert isinstance(refusal, ConsumerGroupHeartbeatResponse)
    assert (refusal.error_code, asked) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)


def test_a_long_subscription_is_hashed_before_its_group_is_stepped() -> None:
    names = [f"t{number}" for number in range(300)]

    async def story(node: Node) -> None:
        client = await node.connect()
        for name in names[:3]:
            await client.create(name)
        hashes = cast("GroupsImage", node.broker.services.groups._current_image()).hashes
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        )
        answer = await client.ask(request, 1)
        while answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            assert len(hashes) == 3, "whatever the machine answers"
            await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            await asyncio.sleep(0.1)
            answer = await client.ask(request, 1)
        assert (answer.error_code, len(answer.assignment.topic_partitions)) == (ErrorCode.NONE, 3)

    serve_and(story, offsets_topic_num_partitions=1)
