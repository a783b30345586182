"""Heartbeats that repeat the one before are answered without decoding them, and as if they had been decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import ANONYMOUS
from tests.support.node import Client, Node, serve_and, serve_secured_and

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DENIED = AclBinding(
    ResourceKind.GROUP, "g", PatternType.LITERAL, str(ANONYMOUS), "*", AclOperation.READ, PermissionType.DENY
)
ENTRY = bytes(16)


class Beat(NamedTuple):
    """A member that has joined, by the heartbeat that keeps it, and by the request with which it leaves."""

    request: Any
    version: int
    leave: Any
    leave_version: int


async def consumer(client: Client, member_id: str = "m") -> Beat:
    """A member of the consumer group `g` that has all that it was given."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for _ in range(10):
        answer = await client.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=answer.member_epoch)
        if answer.assignment is not None:
            request.topic_partitions = [
                TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
        await asyncio.sleep(0.5)
    assert answer.assignment is None
    leave = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=-1)
    return Beat(request, 1, leave, 1)


async def classic(client: Client) -> Beat:
    """The only member of the classic group `g`."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    while (joined := await client.ask(join, 9)).error_code != ErrorCode.NONE:
        join.member_id = joined.member_id or ""
        await asyncio.sleep(0.1)
    generation, member_id = joined.generation_id, joined.member_id
    given = SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[given],
    )
    assert (await client.ask(sync, 5)).error_code == ErrorCode.NONE
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
    return Beat(beat, 4, leave, 5)


async def share(client: Client) -> Beat:
    """The only member of the share group `g`, once its share partitions are initialized and assigned."""
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    for _ in range(20):
        answer = await client.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=answer.member_epoch)
        await asyncio.sleep(0.5)
    leave = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
    return Beat(request, 1, leave, 1)


Join = Callable[[Client], Awaitable[Beat]]
each_kind = pytest.mark.parametrize("join", [consumer, classic, share])


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each heartbeat that was tried without a step was answered so."""
    found: list[bool] = []
    prolong = GroupShard.prolong_session

    def noted(self: GroupShard, heartbeat: Any, now_ms: int) -> bool:
        found.append(prolong(self, heartbeat, now_ms))
        return found[-1]

    monkeypatch.setattr(GroupShard, "prolong_session", noted)
    return found


def live(join: Join, story: Callable[[Node, Client, Beat], Awaitable[None]], **properties: str) -> None:
    async def run(node: Node) -> None:
        client = await node.connect()
        await prepare(client)
        await story(node, client, await join(client))

    named = {"share_coordinator_state_topic_replication_factor": "1", "share_coordinator_state_topic_min_isr": "1"}
    serve_secured_and(run, {name.replace("_", "."): value for name, value in (named | properties).items()})


async def prepare(client: Client) -> None:
    """Create the topic that members read, and wait until the group has a coordinator."""
    await client.create("t", 2)
    question = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await client.ask(question, 4)).coordinators[0].error_code != ErrorCode.NONE:
        await asyncio.sleep(0.1)
    while (await client.ask(ListGroupsRequest(), 4)).error_code != ErrorCode.NONE:
        await asyncio.sleep(0.1)


async def codes(client: Client, beat: Beat, count: int) -> list[int]:
    return [(await client.ask(beat.request, beat.version)).error_code for _ in range(count)]


@each_kind
def test_repeated_heartbeats_keep_a_member_and_the_session_of_a_silent_one_ends(
    join: Join, repeated: list[bool]
) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        repeated.clear()
        for _ in range(30):
            await asyncio.sleep(4)
            assert await codes(client, beat, 1) == [ErrorCode.NONE]
        assert repeated.count(True) >= 29
        await asyncio.sleep(60)
        assert await codes(client, beat, 1) == [ErrorCode.UNKNOWN_MEMBER_ID]

    live(join, story)


@each_kind
def test_a_member_that_leaves_between_two_heartbeats_of_one_read_is_unknown_to_the_second(
    join: Join, repeated: list[bool]
) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        first = await client.ask(beat.request, beat.version)
        repeated.clear()
        for request, version in [(beat.request, beat.version)] * 3 + [(beat.leave, beat.leave_version)]:
            client.send(request, version)
        client.send(beat.request, beat.version)
        assert [await client.reply() for _ in range(3)] == [first] * 3
        assert (await client.reply()).error_code == ErrorCode.NONE
        assert (await client.reply()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert repeated[:3] == [True] * 3

    live(join, story)


@each_kind
def test_a_heartbeat_behind_a_request_that_waits_is_answered_after_it(join: Join) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        assert await codes(client, beat, 2) == [ErrorCode.NONE] * 2
        client.send(ListGroupsRequest(), 4)
        client.send(beat.request, beat.version)
        client.send(ListGroupsRequest(), 4)
        client.send(beat.request, beat.version)
        replies = [await client.reply() for _ in range(4)]
        assert [each.error_code for each in replies] == [ErrorCode.NONE] * 4

    live(join, story)


@each_kind
def test_a_heartbeat_that_arrives_in_two_parts_is_answered(join: Join, repeated: list[bool]) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        assert await codes(client, beat, 2) == [ErrorCode.NONE] * 2
        frame = size_prefixed(request_frame(beat.request, beat.version, 77, client.client_id))
        repeated.clear()
        for at in range(1, len(frame), 3):
            client.writer.write(frame[:at])
            await asyncio.sleep(0.1)
            client.writer.write(frame[at:])
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            assert (await client.reader.readexactly(size))[:4] == b"\0\0\0\x4d"
        assert repeated and all(repeated)

    live(join, story)


@each_kind
@pytest.mark.parametrize("logs_allowed", [False, True])
def test_heartbeats_are_refused_from_the_moment_when_an_acl_denies_them(
    join: Join, logs_allowed: bool, repeated: list[bool]
) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        authorizer = node.broker.security.authorizer
        assert authorizer is not None
        repeated.clear()
        assert await codes(client, beat, 3) == [ErrorCode.NONE] * 3
        assert any(repeated) is not logs_allowed, "the audit log has a line for each"
        for _ in range(2):
            authorizer.apply_changes({ENTRY: DENIED})
            assert await codes(client, beat, 2) == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
            authorizer.apply_changes({ENTRY: None})
            assert await codes(client, beat, 3) == [ErrorCode.NONE] * 3

    live(
        join,
        story,
        authorizer_class_name=AUTHORIZER,
        allow_everyone_if_no_acl_found="true",
        moldau_audit_log_allowed=str(logs_allowed).lower(),
    )


@each_kind
def test_heartbeats_under_a_quota_are_counted(join: Join, repeated: list[bool]) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        assert await codes(client, beat, 2) == [ErrorCode.NONE] * 2
        await client.set_quota("request_percentage", 1, client_id="test")
        repeated.clear()
        assert await codes(client, beat, 3) == [ErrorCode.NONE] * 3
        assert not repeated

    live(join, story)


@each_kind
def test_a_coordinator_that_moved_refuses_heartbeats(join: Join) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        assert await codes(client, beat, 2) == [ErrorCode.NONE] * 2
        groups = node.broker.services.groups
        groups.on_leadership_lost(groups.partition_of("g"))
        assert await codes(client, beat, 2) == [ErrorCode.NOT_COORDINATOR] * 2

    live(join, story)


def test_a_heartbeat_is_not_repeated_after_its_group_has_changed(repeated: list[bool]) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        assert await codes(client, beat, 2) == [ErrorCode.NONE] * 2
        other = await node.connect()
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="other",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await other.ask(joining, 1)).error_code == ErrorCode.NONE
        await asyncio.sleep(2)
        repeated.clear()
        answer = await client.ask(beat.request, beat.version)
        assert repeated == [False]
        assert answer.assignment is not None and len(answer.assignment.topic_partitions[0].partitions) == 1

    live(consumer, story)


@each_kind
def test_the_frame_of_a_client_with_a_long_id_is_not_kept(join: Join, repeated: list[bool]) -> None:
    async def story(node: Node, client: Client, beat: Beat) -> None:
        long = await node.connect(client_id="i" * 2000)
        beat = await join(long)
        repeated.clear()
        assert await codes(long, beat, 3) == [ErrorCode.NONE] * 3
        assert not repeated

    async def run(node: Node) -> None:
        await prepare(await node.connect())
        await story(node, await node.connect(), Beat(None, 0, None, 0))

    serve_and(run)
