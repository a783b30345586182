"""A consumer of a group as clients are: it joins, syncs, says that it lives, commits, leaves, forgets, comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from random import Random
from typing import Final, Protocol, TypeAlias

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.group import events
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.records.offsets import ConsumerProtocolSubscription

TOPICS: Final = ("t", "u", "v")
PROTOCOL_TYPE: Final = "consumer"
STRANGER: Final = "stranger"
LEADER_EPOCH_VERSION: Final = 6
"""Before this version of OffsetCommit none is said."""

Make: TypeAlias = Callable[[Waiter], events.Event]
"""A request, as often as it is sent."""
Sent: TypeAlias = tuple[Make, int]
"""And its version."""


class ClassicIdentity(Protocol):
    """How a member of the classic protocol names itself in its requests."""

    name: str
    group_id: str
    member_id: str
    generation: int
    instance: str | None
    session_ms: int
    rebalance_ms: int


def join_request(of: ClassicIdentity, protocols: Mapping[str, bytes], fresh_id: Callable[[], str]) -> Make:
    """`protocols`: the metadata by the name of the assignor."""
    request = partial(
        JoinGroupRequest,
        group_id=of.group_id,
        session_timeout_ms=of.session_ms,
        rebalance_timeout_ms=of.rebalance_ms,
        member_id=of.member_id,
        group_instance_id=of.instance,
        protocol_type=PROTOCOL_TYPE,
    )

    def make(waiter: Waiter) -> events.Event:
        offered = [JoinGroupRequestProtocol(name=each, metadata=metadata) for each, metadata in protocols.items()]
        return classic_events.Join(waiter, request(protocols=offered), of.name, "/10.0.0.1", fresh_id())

    return make


def sync_request(of: ClassicIdentity, protocol: str, planned: Mapping[str, bytes]) -> Sent:
    """`planned`: the assignments by member id, if the member leads."""
    request = partial(
        SyncGroupRequest,
        group_id=of.group_id,
        generation_id=of.generation,
        member_id=of.member_id,
        group_instance_id=of.instance,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
    )

    def make(waiter: Waiter) -> events.Event:
        shares = [SyncGroupRequestAssignment(member_id=key, assignment=each) for key, each in planned.items()]
        return classic_events.Sync(waiter, request(assignments=shares))

    return make, 5


def heartbeat_request(of: ClassicIdentity) -> Sent:
    request = partial(
        HeartbeatRequest,
        group_id=of.group_id,
        generation_id=of.generation,
        member_id=of.member_id,
        group_instance_id=of.instance,
    )
    return lambda waiter: classic_events.Heartbeat(waiter, request()), 4


def subscription(topics: list[str], owned: str = "") -> bytes:
    said = ConsumerProtocolSubscription(topics=topics, user_data=owned.encode())
    return (1).to_bytes(2, "big") + encode(said, 1)


class Client:
    def __init__(self, name: str, group_id: str, random: Random, offsets: count[int], instance: str | None) -> None:
        self.name = name
        self.group_id = group_id
        self.instance = instance
        self.random = random
        self.offsets = offsets
        """Each is committed once."""
        self.session_ms = random.choice((6_000, 10_000, 30_000))
        self.rebalance_ms = random.choice((5_000, 20_000, 60_000))
        self.join_version = random.choice((5, 9) if instance else (0, 3, 4, 9))
        self.leave_version = random.choice((2, 5))
        self.topics = [random.choice(TOPICS)]
        self.names = ["range"]
        self.member_id = ""
        self.generation = -1
        self.others: list[tuple[str, str]] | None = None
        """Members with their places, if this one leads."""
        self.is_joined = self.is_synced = self.is_waiting = False
        self._plans = 0
        self._planned: dict[str, str] = {}
        self._planned_about: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self.change()

    @property
    def place(self) -> str:
        return self.instance or self.member_id

    # What it may do next

    def requests(self) -> list[Callable[[], Sent]]:
        """What makes sense now; what is likely more than once."""
        if not self.is_joined:
            return [self.join]
        if not self.is_synced:
            return [*[self.sync] * 6, self.heartbeat, self.commit]
        return [*[self.heartbeat] * 4, *[self.commit] * 4, self.sync, self.join]

    def join(self) -> Sent:
        self.is_joined = self.is_synced = False
        protocols = dict.fromkeys(self.names, subscription(self.topics, self.owned))
        return join_request(self, protocols, lambda: f"{next(self.offsets)}"), self.join_version

    def sync(self) -> Sent:
        planned = self._plan() if self.others is not None else {}
        return sync_request(self, self.protocol_name, {key: each.encode() for key, each in planned.items()})

    def _plan(self) -> dict[str, str]:
        """One for a generation, however often it is sent: of two Apache Kafka gives the first and stores the second."""
        assert self.others is not None
        about = (self.generation, tuple(self.others))
        if self._planned_about != about:
            self._planned_about, self._plans = about, self._plans + 1
            places = [each for each in self.others if self.random.random() < 0.95]  # a leader may forget a member
            plan = f"{self.group_id}/{self.generation}/{self.name}{self._plans}"
            self._planned = {member_id: f"{plan}/{place}" for member_id, place in [*places, (STRANGER, STRANGER)]}
        return self._planned

    def heartbeat(self) -> Sent:
        return heartbeat_request(self)

    def commit(self) -> Sent:
        return commit_request(self.random, self.offsets, self.group_id, self.generation, self.member_id, self.instance)

    def leave(self) -> Sent:
        """An operator removes a static member by its instance id."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=None)
        if self.instance:
            identity = MemberIdentity(member_id="", group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.forget()
        return lambda waiter: classic_events.Leave(waiter, request), 5 if self.instance else self.leave_version

    # What becomes of it

    def forget(self) -> None:
        """A process begins: of what it was it knows its configuration."""
        self.member_id, self.generation, self.others, self.protocol_name = "", -1, None, "range"
        self.is_joined = self.is_synced = self.is_waiting = False
        self.owned = ""

    def change(self) -> None:
        """Its configuration, with a new process."""
        self.forget()
        self.topics = self.random.sample(TOPICS, self.random.choice((1, 1, 2)))
        self.names = self.random.choice((["range"], ["range", "sticky"], ["sticky", "range"]))

    def hear(self, response: object) -> None:
        """The answer to what it asked last."""
        self.is_waiting = False
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse():
                self.is_synced = response.error_code == ErrorCode.NONE
                self.owned = bytes(response.assignment).decode() if self.is_synced else self.owned
                self._refused(response.error_code)
            case HeartbeatResponse():
                self._refused(response.error_code)
            case OffsetCommitResponse():
                self._refused(response.topics[0].partitions[0].error_code)
            case LeaveGroupResponse():
                self.forget()

    def _joined(self, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.is_joined = True
            self.is_synced = False
            self.protocol_name = response.protocol_name or ""
            leads = response.leader == response.member_id and not response.skip_assignment
            members = [(each.member_id, each.group_instance_id or each.member_id) for each in response.members]
            self.others = members if leads else None
        self._refused(response.error_code)

    def _refused(self, error_code: int) -> None:
        match error_code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID | ErrorCode.GROUP_MAX_SIZE_REACHED:
                self.forget()
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                self.change()
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                self.is_joined = self.is_synced = False


def commit_request(
    random: Random, offsets: count[int], group_id: str, generation: int, member_id: str, instance: str | None
) -> Sent:
    """One or two partitions, of which one may have a text with it."""
    version = random.choice((2, 5, 9))
    retention_ms = random.choice((-1, 20_000)) if version == 2 else -1
    placed = [(random.choice(TOPICS), random.randint(0, 1), next(offsets)) for _ in range(random.choice((1, 1, 2)))]
    metadata = random.choice(("", "", f"said by {member_id}"))

    def make(waiter: Waiter) -> events.Event:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=offset % 7 if version >= LEADER_EPOCH_VERSION else -1,
                        committed_metadata=metadata,
                    )
                ],
            )
            for topic, index, offset in placed
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=topics,
        )
        return events.CommitOffsets(waiter, request)

    return make, version
