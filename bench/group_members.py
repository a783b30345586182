"""Many members of groups on one node: how soon a group is stable, and what heartbeats cost.

The members are raw requests of this module, the same for both brokers. Like a client, a member of a consumer group
sends a heartbeat in the interval that the broker returns, and another one at once when its assignment has changed.
Members of classic groups are in `bench/classic_members.py`.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from bench.async_client import COORDINATOR_STARTING_ERRORS, Connection, open_connection
from bench.classic_members import ClassicMember
from bench.client import Client
from bench.contenders import Contender, ResourceUsage, run_in_turns
from bench.figures import Figure
from bench.frames import batch_of, produce_frame
from bench.groups import RunForm
from bench.pinger import Pinger
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

Run = TypeVar("Run")

MEMBERS: Final = 100
PARTITIONS: Final = 100
GROWN_PARTITIONS: Final = 200
GROUPS: Final = 1_000
MEMBERS_EACH: Final = 10
GROUPS_QUICK: Final = 100
JOINS_AT_ONCE: Final = 100
INTERVAL_S: Final = 5.0
"""The interval between the heartbeats of a consumer group's member."""
HEARTBEATS_DURATION_S: Final = 10.0
"""The measured time: two intervals of heartbeats."""
PING_DURATION_S: Final = 5.0
WARM_UP_DIVISOR: Final = 3
"""The warm-up of a closed loop is shortened by this divisor, because the members send few requests."""
PATIENCE_S: Final = 120.0
STABLE_FOR_S: Final = 6.0
"""The time for which a group must stay stable. It is longer than the heartbeat interval: until then a member may not
know of a newer epoch. The interval of a classic group is shorter.
"""
VERSION: Final = 1
JOIN: Final = 0
LEAVE: Final = -1
DESCRIPTORS: Final = 24_000
STABLE: Final = "a consumer group of 100 members is stable"
STABLE_CLASSIC: Final = "a classic group of 100 members, cooperative, is stable"
CHANGES: Final = ("all join", "one leaves", "100 partitions more")
HEARTBEATS: Final = "heartbeats of 10,000 members of 1,000 consumer groups"


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard_limit), hard_limit))
    with ExitStack() as stack:
        return _measured(form, [_contender(bench, name, form, stack) for name in bench.names])


def _contender(bench: Bench, name: str, form: RunForm, stack: ExitStack) -> Contender:
    server = bench.new_server(name)
    server.format()
    stack.callback(remove_server, server)
    contender = Contender(stack.enter_context(RunningBroker(server)))
    contender.warm_up(form.warm_up_s / WARM_UP_DIVISOR)
    return contender


def _measured(form: RunForm, contenders: Sequence[Contender]) -> list[Figure]:
    figures = []
    for title, members in ((STABLE, consumer_members), (STABLE_CLASSIC, classic_members)):
        if form.case in title:
            changes = run_in_turns(contenders, form.rounds, _changing(members), lambda times: f"stable after {times} s")
            for what in CHANGES:
                times = {name: [run[what] for run in mine] for name, mine in changes.items()}
                figures.append(Figure(f"{title}: after {what}", "s", times))
    return figures + (_of_heartbeats(form, contenders) if form.case in HEARTBEATS else [])


def _changing(members: MakeMembers) -> Callable[[Contender], dict[str, float]]:
    return lambda contender: asyncio.run(_changes(contender, members))


def _of_heartbeats(form: RunForm, contenders: Sequence[Contender]) -> list[Figure]:
    groups = GROUPS_QUICK if form.is_quick else GROUPS
    beats = run_in_turns(
        contenders,
        form.rounds,
        lambda each: asyncio.run(_without_collections(_heartbeats(each, groups))),
        lambda run: (
            f"{run['cpu']:.3f} of a core, {run['rate']:.0f} heartbeats/s, produce p99 {run['p99']:.2f} ms, "
            f"{run['p99'] / run['p99 ratio']:.2f} ms without"
        ),
    )

    def of(key: str) -> dict[str, list[float]]:
        return {name: [run[key] for run in mine] for name, mine in beats.items()}

    return [
        Figure(f"{HEARTBEATS}: CPU", "of a core", of("cpu"), note=f"{groups} groups of {MEMBERS_EACH}"),
        Figure(f"{HEARTBEATS}: produce p99 beside, times that without", "x", of("p99 ratio")),
    ]


class GroupMember(Protocol):
    """A member of a group of either protocol."""

    epoch: int
    """The member's epoch, or its generation."""

    @property
    def owned(self) -> Collection[object]:
        """The partitions that the member owns."""

    async def join(self) -> None:
        """Join the group. Returns when the group has accepted the member."""

    def begin_heartbeats(self, delay_s: float) -> None:
        """Send heartbeats from now on."""

    async def leave(self) -> None: ...

    def close(self) -> None: ...


class MemberGroup(NamedTuple):
    """The members of a group of one protocol, which have not joined yet."""

    members: list[GroupMember]
    on_partitions_added: Callable[[int], None]
    """Called with the number of the topic's partitions, like a client that learns of it from the metadata."""


MakeMembers: TypeAlias = Callable[[int, str, str], MemberGroup]
"""Makes the members of a group from port, group id and topic."""


def consumer_members(port: int, group_id: str, topic: str) -> MemberGroup:
    return MemberGroup(
        [ConsumerGroupMember(port, group_id, f"{group_id}-{number:04}", topic) for number in range(MEMBERS)],
        lambda count: None,
    )


def classic_members(port: int, group_id: str, topic: str) -> MemberGroup:
    counts = [PARTITIONS]
    members = [ClassicMember(port, group_id, topic, lambda: counts[-1]) for _ in range(MEMBERS)]

    def grown(count: int) -> None:
        counts.append(count)
        for member in members:
            if member.is_leader:
                member.must_rejoin.set()

    return MemberGroup([*members], grown)


class ConsumerGroupMember:
    """A member of a consumer group."""

    def __init__(self, port: int, group_id: str, name: str, topic: str) -> None:
        self.group_id = group_id
        self.member_id = name
        self.epoch = JOIN
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self.heartbeats = 0
        self._topic = topic
        self._port = port
        self._interval_s = INTERVAL_S
        self._connection: Connection | None = None
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Send the first heartbeat, and return when it is answered. Later heartbeats are sent by a task."""
        self._connection = await open_connection(self._port)
        await self._until_reconciled(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=JOIN,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    def begin_heartbeats(self, delay_s: float) -> None:
        """Send heartbeats from now on; a former schedule is replaced."""
        if self._beating is not None:
            self._beating.cancel()
        self._beating = asyncio.get_running_loop().create_task(self._beat(delay_s))

    async def _beat(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            await self._until_reconciled(self._heartbeat())
            await asyncio.sleep(self._interval_s)

    def _heartbeat(self, *, is_told: bool = False) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if is_told:
            topics = {topic_id for topic_id, _ in self.owned}
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=[at for each, at in self.owned if each == topic_id])
                for topic_id in topics
            ]
        return request

    async def _until_reconciled(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Send heartbeats that report the owned partitions, until a response has no new assignment."""
        assert self._connection is not None
        while True:
            answer = await self._connection.ask(request, ConsumerGroupHeartbeatResponse, VERSION)
            if answer.error_code in COORDINATOR_STARTING_ERRORS:
                await asyncio.sleep(0.1)
                continue
            assert answer.error_code == ErrorCode.NONE, f"{self.member_id}: {answer}"
            self.heartbeats += 1
            self.epoch = answer.member_epoch
            self._interval_s = answer.heartbeat_interval_ms / 1000
            if answer.assignment is None:
                return
            given = answer.assignment.topic_partitions
            self.owned = frozenset((each.topic_id, at) for each in given for at in each.partitions)
            request = self._heartbeat(is_told=True)

    async def leave(self) -> None:
        assert self._connection is not None and self._beating is not None
        self._beating.cancel()
        await asyncio.sleep(0.01)
        self._connection.close()
        self._connection = await open_connection(self._port)
        self.owned = frozenset()
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE)
        await self._connection.ask(request, ConsumerGroupHeartbeatResponse, VERSION)

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._connection is not None:
            self._connection.close()


def _is_stable(members: Sequence[GroupMember], partitions: int) -> bool:
    """Whether all members have the same epoch, and each partition has exactly one owner."""
    owned = [each for member in members for each in member.owned]
    return len({member.epoch for member in members}) == 1 and len(owned) == len(set(owned)) == partitions


async def _until_stable(
    members: Sequence[GroupMember], partitions: int, change: Callable[[], Awaitable[object]]
) -> float:
    """Begin a change, and return the time (s) until the group is stable and stays so for `STABLE_FOR_S`."""
    began = time.perf_counter()
    await change()
    since: float | None = None
    epoch = JOIN
    while since is None or time.perf_counter() - since < STABLE_FOR_S:
        if not _is_stable(members, partitions):
            since = None
        elif since is None or members[0].epoch != epoch:
            since, epoch = time.perf_counter(), members[0].epoch
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"not stable after {PATIENCE_S} s: epochs {sorted({each.epoch for each in members})}")
        await asyncio.sleep(0.005)
    return since - began


def _create(client: Client, topic: str, partitions: int) -> None:
    named = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[named]), CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer
    client.produce_with_retries(topic)
    # The broker makes the topic of the offsets when it is first asked for a coordinator.
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[topic]), FindCoordinatorResponse, 4)


async def _joined(members: Sequence[GroupMember]) -> None:
    """Let all members join, some at a time, and spread their heartbeats over the interval."""
    turn = asyncio.Semaphore(JOINS_AT_ONCE)

    async def join(number: int, member: GroupMember) -> None:
        async with turn:
            await member.join()
        member.begin_heartbeats(INTERVAL_S * number / len(members))

    await asyncio.gather(*(join(number, member) for number, member in enumerate(members)))


def _spread(members: Sequence[GroupMember]) -> None:
    """Spread the heartbeats over the interval again. Heartbeats that fell due while the broker or this client was busy
    would otherwise be sent together, in this interval and in all later ones.
    """
    for number, member in enumerate(members):
        member.begin_heartbeats(INTERVAL_S * number / len(members))


async def _changes(contender: Contender, make: MakeMembers) -> dict[str, float]:
    with contender.new_topic() as (client, name):
        topic = f"{name}-wide"
        _create(client, topic, PARTITIONS)
        members, grown = make(contender.port, name, topic)
        try:
            joined_s = await _until_stable(members, PARTITIONS, lambda: _joined(members))
            gone, *rest = members
            left_s = await _until_stable(rest, PARTITIONS, gone.leave)

            async def grow() -> None:
                more = CreatePartitionsTopic(name=topic, count=GROWN_PARTITIONS, assignments=None)
                request = CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=False)
                answer = client.ask(request, CreatePartitionsResponse, 3).results[0]
                assert answer.error_code == ErrorCode.NONE, answer
                grown(GROWN_PARTITIONS)

            grown_s = await _until_stable(rest, GROWN_PARTITIONS, grow)
            await asyncio.gather(*(member.leave() for member in rest))
        finally:
            for member in members:
                member.close()
        client.delete_topic(topic)
    return dict(zip(CHANGES, (round(each, 3) for each in (joined_s, left_s, grown_s)), strict=True))


async def _without_collections(work: Awaitable[Run]) -> Run:
    """Run `work` without garbage collections: one among the objects of 10,000 members takes 200 ms, after which all
    heartbeats that fell due would be sent together.
    """
    gc.disable()
    try:
        return await work
    finally:
        gc.enable()


async def _heartbeats(contender: Contender, groups: int) -> dict[str, float]:
    with contender.new_topic() as (client, name):
        topic = f"{name}-wide"
        _create(client, topic, MEMBERS_EACH)
        frame = produce_frame(topic, batch_of([100], time.time_ns() // 1_000_000))
        alone_ms = await _pinged(contender.port, frame, PING_DURATION_S)
        members = [
            ConsumerGroupMember(contender.port, f"{name}-{group}", f"{name}-{group}-{number}", topic)
            for group in range(groups)
            for number in range(MEMBERS_EACH)
        ]
        try:
            await _joined(members)
            each = [members[start : start + MEMBERS_EACH] for start in range(0, len(members), MEMBERS_EACH)]
            deadline = time.monotonic() + PATIENCE_S
            epochs: list[int] = []
            while not all(_is_stable(group, MEMBERS_EACH) for group in each) or epochs != [m.epoch for m in members]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"groups are not stable after {PATIENCE_S} s")
                epochs = [member.epoch for member in members]
                await asyncio.sleep(STABLE_FOR_S)
            _spread(members)
            await asyncio.sleep(INTERVAL_S)
            before = sum(member.heartbeats for member in members)
            spent = await _spent(contender, HEARTBEATS_DURATION_S)
            beats = sum(member.heartbeats for member in members) - before
            beside_ms = await _pinged(contender.port, frame, PING_DURATION_S)
            # Sessions that end by themselves would cost the broker CPU in the turn of the other one.
            await _all_leave(members)
        finally:
            for member in members:
                member.close()
        client.delete_topic(topic)
    return {
        "cpu": spent.cpu.total_s / spent.seconds,
        "rate": beats / spent.seconds,
        "p99": beside_ms,
        "p99 ratio": beside_ms / alone_ms,
    }


async def _all_leave(members: Sequence[GroupMember]) -> None:
    turn = asyncio.Semaphore(JOINS_AT_ONCE)

    async def leave(member: GroupMember) -> None:
        async with turn:
            await member.leave()

    await asyncio.gather(*map(leave, members))


async def _spent(contender: Contender, seconds: float) -> ResourceUsage:
    """Measure the broker's resources while the members send their heartbeats."""
    loop = asyncio.get_running_loop()
    _, spent = await loop.run_in_executor(None, lambda: contender.measure_usage(lambda: time.sleep(seconds)))
    return spent


async def _pinged(port: int, frame: bytes, seconds: float) -> float:
    """Return the p99 (ms) of small produces."""
    pinger = await asyncio.get_running_loop().run_in_executor(None, lambda: Pinger(port, frame))
    await asyncio.sleep(seconds)
    await asyncio.get_running_loop().run_in_executor(None, pinger.end)
    return pinger.p99_ms
