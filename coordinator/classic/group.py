"""A classic group: its states and their transitions, its members, its generation, and its description for
DescribeGroups.

A group is a set of members that divide the partitions of some topics among themselves. In each of its successive
generations one member, the leader, assigns partitions to all members. A change of the members or of a subscription ends
the generation and starts a rebalance, which has two phases:

    Empty ──join──▶ PreparingRebalance ──joined, or time out──▶ CompletingRebalance ──assignment stored──▶ Stable
      ▲               │  ▲         ▲                                     │                                  │
      └──no member────┘  │         └───── a join, a leave, a failure ────┘                                  │
                         └─────────────── a join, a leave, a failure ───────────────────────────────────────┘

* **Empty**: the group has no members. It may have offsets, and member ids that clients got and have not joined with
  yet.
* **PreparingRebalance**: joins are parked until every member has joined, or the longest rebalance timeout is over;
  members that have not joined by then are removed, except static ones. The first rebalance of an empty group lasts for
  `group.initial.rebalance.delay.ms`, so that members which start together are in one generation.
* **CompletingRebalance**: joins are answered with a new generation; syncs are parked until the leader sends the
  assignment and its record is committed.
* **Stable**: every member has its assignment.
* **Dead**: the group does not exist. No group of the shard is in this state.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from moldau.coordinator.classic.events import ClassicTimer
from moldau.coordinator.group.group import Group, TimerKey
from moldau.coordinator.group.records import Change, RecordChange
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.compiler import decoder_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.offsets import ConsumerProtocolSubscription, GroupMetadataKey


class GroupState(Enum):
    """The states of a classic group. The values are Kafka's names in the protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
FORMER_STATES: Final = {
    EMPTY: {PREPARING},
    PREPARING: {EMPTY, COMPLETING, STABLE},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: {EMPTY},
}
"""For each state, the states from which a group may move into it."""
HEARTBEAT_ANSWERS: Final = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: ErrorCode.NONE,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""The error of a heartbeat with the right member id and generation, by state."""
COMMIT_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NONE,
    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.ILLEGAL_GENERATION,
}
"""The error of an OffsetCommit of a member with the right id and generation, by state.

Until the join phase of a rebalance ends, the members may still commit for the generation that the rebalance ended.
"""
DELETE_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}
"""The error of DeleteGroups for a group, by the group's state."""
NO_ASSIGNMENT = b""


@dataclass(slots=True)
class Member:
    """A member of a classic group, with its assignment and its parked requests. Protocols are in the order of the
    member's preference; their metadata and the assignment are the clients' own bytes.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Whether the member has not received its id yet.

    It cannot send heartbeats, so its session runs while its join is parked.
    """
    joining: Waiter | None = None
    """The waiter of the parked join."""
    syncing: Waiter | None = None
    """The waiter of the parked sync."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_kept_by_a_parked_request(self) -> bool:
        """Whether a parked request keeps the member in the group without heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """The metadata of the member for a protocol; empty if it does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that is among the candidates."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)


CONSUMER_PROTOCOL_TYPE = "consumer"
NOT_FOUND_VERSION: Final = 6
"""From this version of DescribeGroups on, a group that does not exist is an error; before, it is a dead group."""


class ClassicGroup:
    """A group of the classic protocol; it implements `moldau.coordinator.group.group.Group`.

    The log stores each generation with its assignments. Everything else (parked requests, sessions, members that are
    joining) is volatile: the next coordinator starts without it.
    """

    type_name = "classic"

    def __init__(self, group_id: str, changed_ms: int | None) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.former_state = EMPTY
        self.changed_ms = changed_ms
        """Wall-clock time (ms) of the last transition; None if it is not known: records before version 2 do not hold
        it.
        """
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member id by group instance id."""
        self.pending_members: set[str] = set()
        """Ids that the coordinator gave to members which have not joined with them yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members of this generation that have not synced yet, in the order of their joins."""
        self.joining_count = 0
        """The number of members whose join is parked."""
        self.grew = False
        """Whether a member has joined since the initial rebalance delay was last extended."""
        self.delay_ms = self.remaining_delay_ms = 0
        """The delay of the initial rebalance, and the total time (ms) by which joins may still extend it."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics to which this generation's members are subscribed; None if they cannot be known."""
        self.visible_from: int | None = None
        """The end offset of the group's first record; None before that record is appended. Readers see the group once
        the record is committed."""
        self._supporters: Counter[str] = Counter()
        """The number of members that support a protocol, by its name."""

    # Members of the `Group` protocol

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def timers(self) -> list[TimerKey]:
        sessions = [
            TimerKey(ClassicTimer.SESSION, self.group_id, each) for each in {*self.members, *self.pending_members}
        ]
        return [*sessions, TimerKey(ClassicTimer.JOIN, self.group_id), TimerKey(ClassicTimer.SYNC, self.group_id)]

    @property
    def is_simple(self) -> bool:
        return self.protocol_type is None and self.state is EMPTY and not self.pending_members

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    def deletion_error(self) -> ErrorCode:
        return DELETE_ANSWERS[self.state]

    def offset_deletion_error(self) -> ErrorCode:
        """The error of OffsetDelete for this group. A group of consumers may lose the offsets of topics to which no
        member is subscribed; any other group must be empty."""
        return ErrorCode.NONE if self.is_consumer_group else self.deletion_error()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to the topic; true for any topic if a subscription cannot be read."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        """The time (wall clock, ms) at which the retention of an offset begins.

        | group | the retention of an offset begins |
        |---|---|
        | no protocol type (a consumer without a group) | at its commit |
        | empty | when the group became empty; at its commit if that time is not known |
        | stable, of consumers | at its commit (the expiry leaves out the topics of subscribed members) |
        | any other | not yet |
        """
        if self.protocol_type is None:
            return commit_ms
        if self.state is EMPTY:
            return commit_ms if self.changed_ms is None else self.changed_ms
        if self.is_consumer_group and self.state is STABLE and self.subscribed_topics is not None:
            return commit_ms
        return None

    def tombstones(self) -> list[Change]:
        return [RecordChange(self.group_id, GroupMetadataKey(group=self.group_id), None)]

    # Membership and protocols

    @property
    def has_all_joins(self) -> bool:
        """Whether every member has joined the current rebalance, and every client that got a member id has joined with
        it.
        """
        return self.joining_count == len(self.members) and not self.pending_members

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether a client with these protocols may become a member: at least one of the protocols must be supported by
        all members. An empty group takes any protocol."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check the member id and the instance id of a request. Returns NONE if they belong to one member; otherwise
        UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def select_protocol(self) -> str:
        """Choose the protocol of the generation.

        Each member votes for the first of its protocols that all members support. DIVERGES: Apache Kafka resolves equal
        votes by hash order; here the protocol that got its first vote earlier wins.
        """
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def described_members(self) -> list[JoinGroupResponseMember]:
        """The members with their metadata for the group's protocol, as the JoinGroup response to the leader lists
        them."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_of(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # Members join and leave

    def add(self, member: Member) -> None:
        """Add a member. A member that sent a JoinGroup counts as joined; a member that is replayed from the log has not
        joined."""
        assert member.member_id not in self.members, "a member enters once"
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._supporters.update(protocol.name for protocol in member.protocols)
        self.joining_count += member.joining is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a member id that a client got and has not joined with yet.

        If the leader is removed, the oldest member becomes leader.
        """
        self.pending_members.discard(member_id)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.joining is None and member.syncing is None, "replies are given before a member is removed"
        self._withdraw(member)
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give a new member id to a static member that restarted. The member keeps its assignment, and its position in
        the order of the members."""
        member = self.members[old_id]
        assert member.joining is None and member.syncing is None, "replies are given before a member is replaced"
        member.member_id = new_id
        self.members = {new_id if key == old_id else key: value for key, value in self.members.items()}
        assert member.group_instance_id is not None, "only static members are replaced"
        self.static_members[member.group_instance_id] = new_id
        self.pending_syncs.pop(old_id, None)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def change_protocols(self, member: Member, protocols: list[JoinGroupRequestProtocol]) -> None:
        self._withdraw(member)
        member.protocols = protocols
        self._supporters.update(protocol.name for protocol in protocols)

    def park_join(self, member: Member, waiter: Waiter) -> None:
        assert member.joining is None, "a member waits once"
        member.joining = waiter
        self.joining_count += 1

    def take_join(self, member: Member) -> Waiter | None:
        """Remove and return the waiter of the member's JoinGroup request, or None if no such request is parked. The
        caller sends the response to the waiter."""
        waiter, member.joining = member.joining, None
        self.joining_count -= waiter is not None
        return waiter

    def elect_joined_leader(self) -> bool:
        """If the group's leader has not joined the current rebalance, choose as the new leader the first member that
        has. Returns False if no member has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def _withdraw(self, member: Member) -> None:
        """Remove the member's protocols from the counts of supporters."""
        for protocol in member.protocols:
            self._supporters[protocol.name] -= 1
            if not self._supporters[protocol.name]:
                del self._supporters[protocol.name]

    # States

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter a state that may follow the current state (`FORMER_STATES`; asserted). `wall_ms` is the wall clock."""
        assert self.state in FORMER_STATES[state], f"{self.group_id}: {self.state} → {state} is not a transition"
        self.former_state = self.state
        self.state = state
        self.changed_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """Begin a generation with the current members when the join phase ends: raise the generation, choose the
        protocol, and enter CompletingRebalance, or Empty if there is no member."""
        assert self.state is PREPARING, "a generation follows a join phase"
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.update_subscribed_topics()
        self.move_to(COMPLETING if self.members else EMPTY, wall_ms)

    def update_subscribed_topics(self) -> None:
        """Set `subscribed_topics` from the members' metadata; None if the group is not a group of consumers."""
        if not self.is_consumer_group:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = subscribed_topics(
                member.metadata_of(self.protocol_name) for member in self.members.values()
            )


def classic_group(groups: Mapping[str, Group], group_id: str) -> ClassicGroup | None:
    """The classic group with an id; None if the group does not exist or is not a classic group."""
    group = groups.get(group_id)
    return group if isinstance(group, ClassicGroup) else None


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions; None if one of them cannot be decoded. The subscriptions are encoded as in the
    consumer protocol."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(subscription_topics(subscription))
        except MalformedMessage:
            return None
    return frozenset(topics)


def subscription_topics(subscription: bytes) -> list[str]:
    """Decode the topics of a subscription, which begins with an int16 version. Raises `MalformedMessage`.

    Only the fields of version 0 are read, with which all versions begin. Apache Kafka does the same, because some
    clients write the header of version 1 before a body of version 0.
    """
    if len(subscription) < 2:
        raise MalformedMessage("a subscription without a version")
    (version,) = struct.unpack_from(">h", subscription)
    if version < 0:
        raise MalformedMessage(f"subscription version {version}")
    decoded, _ = decoder_of(ConsumerProtocolSubscription, 0)(subscription, 2)
    return decoded.topics


def describe(group: Group | None, group_id: str, version: int) -> DescribedGroup:
    """The DescribeGroups result for a classic group. A group of any other kind is described as absent.

    The result has the protocol and the members' subscriptions only if the group is stable. It always has the
    assignments.
    """
    if not isinstance(group, ClassicGroup):
        return describe_absent(group_id, version, "not found" if group is None else "is not a classic group")
    is_stable = group.state is STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[describe_member(group, member, with_metadata=is_stable) for member in group.members.values()],
    )


def describe_member(group: ClassicGroup, member: Member, *, with_metadata: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata_of(group.protocol_name) if with_metadata else b"",
        member_assignment=member.assignment,
    )


def describe_absent(group_id: str, version: int, reason: str) -> DescribedGroup:
    """The DescribeGroups result for a group that does not exist or is not a classic group. `reason` ends the error
    message."""
    described = DescribedGroup(group_id=group_id, group_state=DEAD.value, protocol_type="", protocol_data="")
    if version >= NOT_FOUND_VERSION:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {reason}."
    return described
