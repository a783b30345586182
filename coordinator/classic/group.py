"""One classic group: its members, its generation, and the named transitions between its states."""

from __future__ import annotations

from collections import Counter

from coordinator.classic.group_state import COMPLETING, EMPTY, FORMER_STATES, PREPARING, GroupState
from coordinator.classic.member import Member
from coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember


class Group:
    """All of it but the generation's record is volatile: who waits, who was heard of, who is on the way in."""

    def __init__(self, group_id: str, changed_ms: int | None) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.former_state = EMPTY
        self.changed_ms = changed_ms
        """Wall clock of the last transition; None where an old record does not tell."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member id by group instance id."""
        self.pending_members: set[str] = set()
        """Ids given to members that have not joined with them yet."""
        self.pending_syncs: dict[str, None] = {}
        """Members of this generation that have not synced yet, in the order of their joins."""
        self.joining_count = 0
        """Members whose join is parked."""
        self.grew = False
        """A member came during the initial delay."""
        self.delay_ms = self.remaining_delay_ms = 0
        """Of the initial rebalance: the wait under way, and what may still be added to it."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics of this generation's members; None where they cannot be known."""
        self.visible_from: int | None = None
        """End offset of the first record about the group: readers see the group when that is committed."""
        self._supporters: Counter[str] = Counter()
        """Members that support a protocol, by its name."""

    # What the group is

    @property
    def is_known_to_all(self) -> bool:
        """Every member waits for the rebalance, and nobody is still on the way with a new id."""
        return self.joining_count == len(self.members) and not self.pending_members

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether somebody with these protocols can be a member."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters[protocol.name] == len(self.members) for protocol in protocols)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of the topic are in use; a consumer group that cannot be read may use any."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def refusal_of(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Why the group does not take this for one of its members, NONE where it does."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support.

        DIVERGES: of protocols with equal votes Apache takes one by hash order; here it is the one first voted for.
        """
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def described_members(self) -> list[JoinGroupResponseMember]:
        """What the leader is told of the members."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_of(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # Who is in it

    def add(self, member: Member) -> None:
        """A member enters, with its join parked or, after loading, without."""
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
        """A member, or one that was on the way in, is out; whoever stands first leads if it was the leader."""
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
        """A static member restarted: it goes on under a new id, in its old place, with its old assignment."""
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
        """Whoever waits for the member's join, who is then answered."""
        waiter, member.joining = member.joining, None
        self.joining_count -= waiter is not None
        return waiter

    def elect_joined_leader(self) -> bool:
        """A leader that did not join gives way to the first that did; False where nobody did."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def _withdraw(self, member: Member) -> None:
        """Take back what the member supports."""
        for protocol in member.protocols:
            self._supporters[protocol.name] -= 1
            if not self._supporters[protocol.name]:
                del self._supporters[protocol.name]

    # Where it is

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        """Take a transition of the table."""
        assert self.state in FORMER_STATES[state], f"{self.group_id}: {self.state} → {state} is no transition"
        self.former_state = self.state
        self.state = state
        self.changed_ms = wall_ms

    def begin_generation(self, wall_ms: int) -> None:
        """The join phase is over: those who are here are the next generation."""
        assert self.state is PREPARING, "a generation follows a join phase"
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscription()
        self.move_to(COMPLETING if self.members else EMPTY, wall_ms)

    def learn_subscription(self) -> None:
        """Read the topics out of what the members said, where that is a consumer's language."""
        if not self.is_consumer_group:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = subscribed_topics(
                member.metadata_of(self.protocol_name) for member in self.members.values()
            )
