"""Heartbeats in stable classic groups wait for a rebalance, if the client sends them beside its other work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.coordinators.held_heartbeats import HeldHeartbeats
from moldau.coordinator.classic.events import AnswerHeartbeats
from moldau.coordinator.classic.group import STABLE, ClassicGroup, Member
from moldau.coordinator.classic.membership import wait_max_ms
from moldau.coordinator.group.config import GroupConfig
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.node import Client, Node, fetch_request, serve_secured_and

JAVA = "apache-kafka-java"
SESSION_MS = 10_000
LONGEST_S = SESSION_MS / 5 / 1000


class Consumer:
    """A member of the classic group `g` with a connection of its own."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        """Join, again and again until a generation has begun in which the group did not change."""
        while not await self._joins():
            pass

    async def _joins(self) -> bool:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=10_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await self.client.ask(request, 9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = self.member_id = joined.member_id
            joined = await self.client.ask(request, 9)
        assert joined.error_code == ErrorCode.NONE
        self.generation = joined.generation_id
        given = [SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"") for each in joined.members]
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        return bool((await self.client.ask(sync, 5)).error_code == ErrorCode.NONE)

    @property
    def beat(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id="g", generation_id=self.generation, member_id=self.member_id)

    async def timed_beat(self) -> tuple[int, float]:
        """Send a heartbeat. Returns the error of the answer, and the seconds until it came."""
        began_s = asyncio.get_running_loop().time()
        answer = await self.client.ask(self.beat, 4)
        return answer.error_code, round(asyncio.get_running_loop().time() - began_s, 1)


async def connect(node: Node, software: str = JAVA) -> Consumer:
    client = await node.connect()
    await client.ask(ApiVersionsRequest(client_software_name=software, client_software_version="4.3.1"), 3)
    question = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await client.ask(question, 4)).coordinators[0].error_code != ErrorCode.NONE:
        await asyncio.sleep(0.1)
    while (await client.ask(ListGroupsRequest(), 4)).error_code != ErrorCode.NONE:
        await asyncio.sleep(0.1)
    return Consumer(client)


def live(story: Callable[[Node, Consumer], Awaitable[None]], software: str = JAVA, **properties: str) -> None:
    """Tell a story of a node and of the only member of a stable group."""

    async def run(node: Node) -> None:
        first = await connect(node, software)
        await first.join()
        await story(node, first)

    serve_secured_and(run, properties)


@pytest.mark.parametrize("earlier", [0, 1, 3], ids="{} heartbeats before".format)
def test_a_member_learns_of_a_rebalance_when_it_begins(earlier: int) -> None:
    """The first heartbeat of a generation is decoded, and the later ones are answered by the hook."""

    async def story(node: Node, first: Consumer) -> None:
        for _ in range(earlier):
            assert await first.timed_beat() == (ErrorCode.NONE, LONGEST_S)
        beat = asyncio.create_task(first.timed_beat())
        second = await connect(node)
        await asyncio.sleep(1)
        joining = asyncio.create_task(second.join())
        assert await beat == (ErrorCode.REBALANCE_IN_PROGRESS, 1.0)
        await asyncio.gather(first.join(), joining)
        assert first.generation == second.generation == 2
        beat = asyncio.create_task(first.timed_beat())
        await asyncio.sleep(0.5)
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=second.member_id)])
        assert (await second.client.ask(leave, 5)).error_code == ErrorCode.NONE
        assert await beat == (ErrorCode.REBALANCE_IN_PROGRESS, 0.5)

    live(story)


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_later_request_of_the_connection_does_not_wait(earlier: int) -> None:
    async def story(node: Node, first: Consumer) -> None:
        for _ in range(earlier):
            await first.timed_beat()
        began_s = asyncio.get_running_loop().time()
        for request, version in [(first.beat, 4), (ListGroupsRequest(), 4), (first.beat, 4), (first.beat, 4)]:
            first.client.send(request, version)
        answers = [(await first.client.reply()).error_code for _ in range(3)]
        assert answers == [ErrorCode.NONE] * 3
        assert asyncio.get_running_loop().time() - began_s < 0.1
        assert (await first.client.reply()).error_code == ErrorCode.NONE, "the last one waits for its time"
        assert asyncio.get_running_loop().time() - began_s > LONGEST_S - 0.1

    live(story)


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_heartbeat_behind_a_request_that_waits_holds_up_none_behind_it(earlier: int) -> None:
    async def story(node: Node, first: Consumer) -> None:
        await first.client.create("t")
        for _ in range(earlier):
            await first.timed_beat()
        began_s = asyncio.get_running_loop().time()
        fetch = fetch_request([("t", 0, 0)], max_wait_ms=500, min_bytes=1)
        for request, version in [(fetch, 12), (first.beat, 4), (ListGroupsRequest(), 4)]:
            first.client.send(request, version)
        assert [(await first.client.reply()).error_code for _ in range(3)] == [ErrorCode.NONE] * 3
        assert 0.4 < asyncio.get_running_loop().time() - began_s < 0.7

    live(story)


def test_a_join_behind_a_held_heartbeat_waits_for_itself_alone() -> None:
    """A JoinGroup that is parked must not hold the heartbeat before it."""

    async def story(node: Node, first: Consumer) -> None:
        first.client.send(first.beat, 4)
        second = await connect(node)
        await asyncio.sleep(0.2)
        joining = asyncio.create_task(second.join())
        assert (await first.client.reply()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.gather(first.join(), joining)

    live(story)


def test_the_group_goes_on_when_the_connection_of_a_held_heartbeat_is_lost() -> None:
    async def story(node: Node, first: Consumer) -> None:
        first.client.send(first.beat, 4)
        await asyncio.sleep(0.1)
        first.client.writer.close()
        await asyncio.sleep(1)
        second = await connect(node)
        await second.join()
        assert second.generation == 2
        assert await second.timed_beat() == (ErrorCode.NONE, LONGEST_S)

    live(story)


def test_the_heartbeats_of_a_large_group_are_answered_in_several_iterations() -> None:
    async def run() -> None:
        held = HeldHeartbeats(asyncio.get_running_loop())
        replies = [held.hold("g", 3_000) for _ in range(120)]
        other = held.hold("other", 3_000)
        replies[7].abandon()
        replies.pop(7)
        held.answer(AnswerHeartbeats("g", ErrorCode.REBALANCE_IN_PROGRESS))
        done = []
        for _ in range(4):
            done.append(sum(each.is_complete for each in replies))
            await asyncio.sleep(0)
        assert done == [0, 50, 100, 119]
        assert {each.response.error_code for each in replies if each.response} == {ErrorCode.REBALANCE_IN_PROGRESS}
        assert not other.is_complete

    asyncio.run(run())


@pytest.mark.parametrize("software", ["kafkajs", "kgo", "moldau"])
def test_a_client_that_may_wait_for_its_heartbeat_is_answered_at_once(software: str) -> None:
    async def story(node: Node, first: Consumer) -> None:
        assert [await first.timed_beat() for _ in range(3)] == [(ErrorCode.NONE, 0.0)] * 3

    live(story, software)


def test_the_setting_turns_it_off() -> None:
    async def story(node: Node, first: Consumer) -> None:
        assert [await first.timed_beat() for _ in range(3)] == [(ErrorCode.NONE, 0.0)] * 3

    live(story, **{"moldau.group.heartbeat.wait.max.ms": "0"})


@pytest.mark.parametrize(
    ("instance_id", "protocol_type", "protocol", "session_ms", "expected_ms"),
    [
        (None, "consumer", "range", 45_000, 3_000),
        (None, "consumer", "range", 6_000, 1_200),
        ("i", "consumer", "range", 45_000, 0),
        (None, "consumer", "stream", 45_000, 0),
        (None, "connect", "sessioned", 45_000, 0),
    ],
)
def test_how_long_a_heartbeat_may_wait(
    instance_id: str | None, protocol_type: str, protocol: str, session_ms: int, expected_ms: int
) -> None:
    """A member that may close without a LeaveGroup would wait for the answer."""
    group = ClassicGroup("g", None)
    protocols = [JoinGroupRequestProtocol(name=protocol, metadata=b"")]
    member = Member("m", instance_id, "", "", 60_000, session_ms, protocol_type, protocols)
    group.add(member)
    group.protocol_name = protocol
    group.state = STABLE
    assert wait_max_ms(group, member, GroupConfig()) == expected_ms
