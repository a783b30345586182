"""What must hold of consumer groups at any time, by the records in their log and by what their members were told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.group import events
from moldau.coordinator.group.records import Change, RecordChange
from moldau.coordinator.runtime.machine import Effects
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from moldau.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tests.simulation.groups.consumer_member import JOIN, NOTHING, ConsumerMember, Owned, partitions_of
from tests.simulation.groups.shell import Asked, Shell, Stored, Violation

SESSION_MS: Final = 45_000
"""group.consumer.session.timeout.ms"""


class Place(NamedTuple):
    """What the log says that a member has."""

    epoch: int
    previous_epoch: int
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    state: int = 0


@dataclass(slots=True)
class LoggedGroup:
    """A group as its records describe it."""

    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def apply(self, change: RecordChange) -> None:
        key, value = change.key, change.value
        match key:
            case ConsumerGroupMetadataKey():
                self.epoch = value.epoch if isinstance(value, ConsumerGroupMetadataValue) else 0
            case ConsumerGroupTargetAssignmentMetadataKey():
                is_given = isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_epoch = value.assignment_epoch if is_given else 0  # type: ignore[attr-defined]
            case ConsumerGroupMemberMetadataKey():
                if isinstance(value, ConsumerGroupMemberMetadataValue):
                    self.members[key.member_id] = value
                else:
                    self.members.pop(key.member_id, None)
            case ConsumerGroupCurrentMemberAssignmentKey():
                if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                    self.places[key.member_id] = Place(
                        value.member_epoch,
                        value.previous_member_epoch,
                        frozenset((each.topic_id, at) for each in value.assigned_partitions for at in each.partitions),
                        frozenset(
                            (each.topic_id, at)
                            for each in value.partitions_pending_revocation
                            for at in each.partitions
                        ),
                        value.state,
                    )
                else:
                    self.places.pop(key.member_id, None)


class ConsumerRules:
    """`latest` follows what is appended, and is built again when another coordinator takes over."""

    def __init__(self, members: list[ConsumerMember]) -> None:
        self.members = members
        self.shell: Shell = None  # type: ignore[assignment]
        self.latest: dict[str, LoggedGroup] = {}
        self.committed_epochs: set[tuple[str, str, int]] = set()
        """Group, member and epoch of each place that was ever committed."""
        self._heard_ms: dict[tuple[str, str], int] = {}
        self._before: dict[int, Place | None] = {}
        """The member's place when its heartbeat came, by the identity of the request."""

    def group(self, group_id: str) -> LoggedGroup:
        return self.latest.setdefault(group_id, LoggedGroup())

    # Steps

    def stepped(self, event: events.Event, effects: Effects) -> None:
        if isinstance(event, ConsumerHeartbeat):
            request = event.request
            self._before[id(event.waiter.token)] = self.group(event.group_id).places.get(request.member_id)
            self._heard_ms[event.group_id, request.member_id] = self.shell.now_ms

    def appended(self, changes: tuple[Change, ...], end_offset: int) -> None:
        for change in changes:
            if isinstance(change, RecordChange):
                self._epoch_grows(change)
                self.group(change.group_id).apply(change)
        for group_id in {change.group_id for change in changes if isinstance(change, RecordChange)}:
            self._has_one_owner_each(group_id)

    def _epoch_grows(self, change: RecordChange) -> None:
        value, group = change.value, self.group(change.group_id)
        if isinstance(value, ConsumerGroupMetadataValue) and value.epoch <= group.epoch:
            raise Violation(f"the epoch of group {change.group_id} goes from {group.epoch} to {value.epoch}")

    def _has_one_owner_each(self, group_id: str) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        group = self.group(group_id)
        for member_id, place in group.places.items():
            if member_id not in group.members:
                raise Violation(f"member {member_id} has a place in group {group_id}, and is no member")
            if place.epoch > group.epoch:
                raise Violation(f"member {member_id} is at epoch {place.epoch}, group {group_id} at {group.epoch}")
            for partition in place.assigned | place.revoking:
                other = owners.setdefault(partition, member_id)
                if other != member_id:
                    raise Violation(f"partition {partition} of group {group_id} is {other}'s and {member_id}'s")

    def committed(self, stored: Stored) -> None:
        for change in stored.changes:
            if isinstance(change, RecordChange) and isinstance(change.value, ConsumerGroupCurrentMemberAssignmentValue):
                assert isinstance(change.key, ConsumerGroupCurrentMemberAssignmentKey)
                self.committed_epochs.add((change.group_id, change.key.member_id, change.value.member_epoch))

    def replied(self, asked: Asked, response: object) -> None:
        event = asked.event
        if not isinstance(event, ConsumerHeartbeat):
            return
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        request, before = event.request, self._before.pop(id(event.waiter.token), None)
        if response.error_code != ErrorCode.NONE or request.member_epoch < JOIN:
            return
        if request.member_epoch > JOIN:
            self._is_rightly_taken(event, before)
        if (event.group_id, request.member_id, response.member_epoch) not in self.committed_epochs:
            raise Violation(f"{request.member_id} was told epoch {response.member_epoch}, which is not committed")

    def _is_rightly_taken(self, event: ConsumerHeartbeat, before: Place | None) -> None:
        """Of a heartbeat of the epoch before, the coordinator knows that its answer was lost: the member owns nothing
        that it may not have.
        """
        request = event.request
        if before is None:
            raise Violation(f"{request.member_id} is no member, and its heartbeat is taken")
        if request.member_epoch == before.epoch:
            return
        owned = partitions_of(request.topic_partitions or ())
        if request.member_epoch != before.previous_epoch or request.topic_partitions is None or owned - before.assigned:
            raise Violation(
                f"{request.member_id} is at epoch {before.epoch}, and epoch {request.member_epoch} is taken"
            )

    def settled(self, event: events.Event) -> None:
        pass

    def loaded(self) -> None:
        """What was cut away never was. The sessions of all members begin again."""
        self.latest.clear()
        for stored in self.shell.log:
            for change in stored.changes:
                if isinstance(change, RecordChange):
                    self.group(change.group_id).apply(change)
        for group_id, group in self.latest.items():
            for member_id in group.members:
                self._heard_ms[group_id, member_id] = self.shell.now_ms

    # Members

    def takes(self, member: ConsumerMember, taken: Owned) -> None:
        """A member begins to own partitions. Nobody else who is still a member may own them."""
        group = self.group(member.group_id)
        if member.member_id not in group.members:
            return  # Its partitions were given to others, and it does not know yet.
        for other in self.members:
            is_member = other.group_id == member.group_id and other.member_id in group.members
            if other is not member and is_member and other.owned & taken:
                raise Violation(f"{member.member_id} and {other.member_id} own {other.owned & taken}")

    def look(self) -> None:
        """After time has passed: who was not heard of is no member."""
        for group_id, group in self.latest.items():
            for member_id, metadata in group.members.items():
                silent_ms = self.shell.now_ms - self._heard_ms.get((group_id, member_id), self.shell.now_ms)
                has_left = metadata.instance_id is not None and group.places[member_id].epoch == -2
                if silent_ms > SESSION_MS and not has_left and self.shell.manners.refuses == 0:
                    raise Violation(f"{member_id} of group {group_id} was not heard of for {silent_ms} ms")

    def is_settled(self, partitions: dict[str, Owned]) -> str:
        """Why the groups are not settled; nothing where they are. `partitions`: those of each topic."""
        for group_id, group in self.latest.items():
            if group.target_epoch != group.epoch and group.members:
                return f"group {group_id} is at epoch {group.epoch}, its assignment at {group.target_epoch}"
            members = [each for each in self.members if each.group_id == group_id]
            if group.members.keys() != {each.member_id for each in members}:
                return f"group {group_id} has {sorted(group.members)}"
            wanted: set[tuple[bytes, int]] = set()
            for member in members:
                place = group.places[member.member_id]
                if place.epoch != group.epoch or place.revoking:
                    return f"{member.member_id} is at {place}, group {group_id} at epoch {group.epoch}"
                if member.owned != place.assigned:
                    return f"{member.member_id} owns {sorted(member.owned)}, and the log says {sorted(place.assigned)}"
                mine = frozenset().union(*(partitions.get(topic, NOTHING) for topic in member.topics))
                if member.owned - mine:
                    return f"{member.member_id} owns {sorted(member.owned - mine)}, to which it is not subscribed"
                wanted |= mine
            missing = wanted - {each for member in members for each in member.owned}
            if missing:
                return f"no member of group {group_id} has {sorted(missing)}"
        return ""
