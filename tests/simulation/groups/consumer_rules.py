"""What must hold of consumer groups at any time, besides what holds of all that heartbeats keep up."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.consumer.member import MemberState
from moldau.coordinator.group import events
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from moldau.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    TopicPartitions,
)
from tests.simulation.groups.consumer_member import JOIN, NOTHING, ConsumerMember, Owned, partitions_of
from tests.simulation.groups.heartbeat_rules import HeartbeatRules, KindOfRecords, LoggedGroup
from tests.support.drawn_stage import Asked
from tests.support.drawn_steps import Violation

AWAY: Final = -2
"""The epoch of a static member that has left for a while."""


class ConsumerPlace(NamedTuple):
    epoch: int
    previous_epoch: int
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    state: int = 0
    since: frozenset[tuple[bytes, int, int]] = frozenset()
    """The partitions that it owns, with the epoch in which it got each."""


class ConsumerRules(HeartbeatRules[ConsumerPlace]):
    kind = KindOfRecords(
        ConsumerHeartbeat,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    )

    def __init__(self, members: list[ConsumerMember]) -> None:
        super().__init__()
        self.members = members
        self._kept: dict[str, dict[str, ConsumerPlace]] = {}
        """The last place of each member, by group."""

    def place_of(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerPlace:
        every = [*value.assigned_partitions, *value.partitions_pending_revocation]
        return ConsumerPlace(
            value.member_epoch,
            value.previous_member_epoch,
            owned_of(value.assigned_partitions),
            owned_of(value.partitions_pending_revocation),
            value.state,
            frozenset(
                (each.topic_id, partition, epoch)
                for each in every
                for partition, epoch in zip(each.partitions, each.assignment_epochs or (), strict=True)
            ),
        )

    def check_group(self, group_id: str, group: LoggedGroup[ConsumerPlace]) -> None:
        """A partition has one owner at most, which has got it in one epoch for as long as it keeps it."""
        self.check_subscriptions(group_id, group)
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, place in group.places.items():
            for partition in place.assigned | place.revoking:
                other = owners.setdefault(partition, member_id)
                if other != member_id:
                    raise Violation(f"partition {partition} of group {group_id} is {other}'s and {member_id}'s")
            if place.epoch != AWAY:  # Then its partitions wait for another member, which may commit with any epoch.
                self._check_kept(member_id, self._kept.get(group_id, {}).get(member_id, place), place)
        self._kept[group_id] = {**group.places}

    def _check_kept(self, member_id: str, former: ConsumerPlace, place: ConsumerPlace) -> None:
        """With the epoch in which it got a partition a member may still commit what it has read of it."""
        since = {(topic_id, partition): epoch for topic_id, partition, epoch in former.since}
        for topic_id, partition, epoch in place.since:
            key = (topic_id, partition)
            if key in former.assigned and epoch != since[key]:
                raise Violation(f"{member_id} keeps {key} of epoch {since[key]}, and the log says epoch {epoch}")

    def loaded(self) -> None:
        super().loaded()
        self._kept = {group_id: {**group.places} for group_id, group in self.latest.items()}

    def check_answer(
        self, asked: Asked, response: ConsumerGroupHeartbeatResponse, before: ConsumerPlace | None
    ) -> None:
        event = asked.event
        assert isinstance(event, ConsumerHeartbeat)
        request = event.request
        if before is not None and request.member_epoch not in (JOIN, before.epoch):
            # Of a heartbeat of the epoch before, the coordinator knows that its answer was lost: the member owns
            # nothing that it may not have.
            owned = partitions_of(request.topic_partitions or ())
            is_former = request.member_epoch == before.previous_epoch and request.topic_partitions is not None
            if not is_former or owned - before.assigned:
                raise Violation(
                    f"{request.member_id} is at epoch {before.epoch}, and epoch {request.member_epoch} is taken"
                )
        if response.assignment is not None:
            told = partitions_of(response.assignment.topic_partitions)
            committed = self.committed_of(request.group_id, request.member_id)
            if not any((each.epoch, each.assigned) == (response.member_epoch, told) for each in committed):
                raise Violation(f"{request.member_id} was given {sorted(told)}, which is not committed")

    def may_commit(self, place: ConsumerPlace, epoch: int, event: events.CommitOffsets) -> bool:
        """With an earlier epoch, what the member has got in it or before, and still owns."""
        wanted = {
            (b"" if (found := self.stage.image.topic_of_name(topic.name)) is None else found.id, each.partition_index)
            for topic in event.request.topics
            for each in topic.partitions
        }
        since = {(topic_id, partition): since for topic_id, partition, since in place.since}
        return epoch < place.epoch and all(key in since and since[key] <= epoch for key in wanted)

    def revocation_ms(self, group: LoggedGroup[ConsumerPlace], member_id: str) -> int | None:
        place, member = group.places[member_id], group.members[member_id]
        assert isinstance(member, ConsumerGroupMemberMetadataValue)
        is_revoking = place.state == MemberState.UNREVOKED_PARTITIONS.value and place.epoch != AWAY
        return member.rebalance_timeout_ms if is_revoking else None

    def is_away(self, group: LoggedGroup[ConsumerPlace], member_id: str) -> bool:
        return group.members[member_id].instance_id is not None and group.places[member_id].epoch == AWAY

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

    def is_settled(self, partitions: dict[str, Owned]) -> str:
        """Why the groups are not settled; nothing if they are. `partitions`: those of each topic."""
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
                mine = frozenset().union(*(each for topic, each in partitions.items() if member.wants(topic)))
                if member.owned - mine:
                    return f"{member.member_id} owns {sorted(member.owned - mine)}, to which it is not subscribed"
                wanted |= mine
            missing = wanted - {each for member in members for each in member.owned}
            if missing:
                return f"no member of group {group_id} has {sorted(missing)}"
        return ""


def owned_of(listed: list[TopicPartitions]) -> Owned:
    return frozenset((each.topic_id, index) for each in listed for index in each.partitions)
