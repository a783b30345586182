"""Converts a group with members from the classic protocol to the consumer protocol, or back.

* **Upgrade**: the first member of the consumer protocol that joins a classic group of consumers converts the group. The
other members stay as classic members of the consumer group (`classic_members.py`). The group epoch is the generation,
and the target assignment is the last assignment of the leader.
* **Downgrade**: when the last member of the consumer protocol leaves, or is replaced by a classic member with its
instance id, the group becomes a classic one. The target assignment becomes its assignment, and the group rebalances.
* An empty group of one kind is replaced by a group of the other kind.

`group.consumer.migration.policy` says whether upgrades and downgrades are allowed. The batch that writes the records of
the new kind removes those of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.coordinator.classic.group import NO_ASSIGNMENT, STABLE, ClassicGroup, Member
from moldau.coordinator.classic.rebalance import (
    expect_heartbeat,
    generation_change,
    prepare_rebalance,
    refuse_join,
    refuse_sync,
)
from moldau.coordinator.consumer.assignors import NOTHING, Assignment
from moldau.coordinator.consumer.embedded_protocol import (
    partitions_by_id,
    read_assignment,
    read_subscription,
    read_version,
    written_assignment,
)
from moldau.coordinator.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup, ConsumerTimer
from moldau.coordinator.consumer.member import ClassicMember, ConsumerMember
from moldau.coordinator.consumer.records import (
    current_change,
    epoch_change,
    group_tombstones,
    member_change,
    target_change,
    target_epoch_change,
)
from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.membership import Refusal, wrong_group_kind
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.protocol.primitives import MalformedMessage


class ConsumerGroupForHeartbeat(NamedTuple):
    """The consumer group of a heartbeat. If the heartbeat converts a classic group, `changes` creates the consumer
    group from it."""

    group: ConsumerGroup
    changes: Sequence[Change] = ()
    upgraded: ClassicGroup | None = None
    """The classic group that was upgraded while it had members; None if the group was a consumer group or had no
    members."""

    def finish(self, step: GroupStep) -> None:
        """Tell the members of the upgraded classic group to rejoin, and begin their sessions. The caller calls this
        after it has accepted the request."""
        if self.upgraded is None:
            return
        for member in self.upgraded.members.values():
            refuse_join(step, self.upgraded, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            refuse_sync(step, member, ErrorCode.REBALANCE_IN_PROGRESS)
            step.schedule(ConsumerTimer.SESSION, self.group, member.session_timeout_ms, member.member_id)
        step.note(self.group, step.add_to_history(self.group.group_id, Cause.BECAME_CONSUMER).text)


def consumer_group_for_heartbeat(
    step: GroupStep, known: Group | None, group_id: str, *, is_join: bool
) -> ConsumerGroupForHeartbeat | Refusal:
    """Find the consumer group of a heartbeat. A heartbeat that joins (`is_join`) creates the group if it does not
    exist, and converts a classic group with this id. Returns a refusal if the group is of another kind, cannot be
    converted, or does not exist."""
    if isinstance(known, ConsumerGroup):
        return ConsumerGroupForHeartbeat(known)
    if known is None and is_join:
        return ConsumerGroupForHeartbeat(ConsumerGroup(group_id))
    if isinstance(known, ClassicGroup) and is_join:
        if known.is_empty:
            return ConsumerGroupForHeartbeat(ConsumerGroup(group_id), known.tombstones())
        return _upgraded(step, known)
    if known is None:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    return wrong_group_kind(group_id, "consumer")


# Upgrade


def _upgraded(step: GroupStep, classic: ClassicGroup) -> ConsumerGroupForHeartbeat | Refusal:
    fault = None
    if not step.config.consumer.migration_policy.is_upgrade_enabled:
        fault = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        fault = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > step.config.consumer.max_size:
        fault = "the group size exceeds the consumer group maximum size"
    else:
        try:
            group = _from_classic(classic, step.image)
        except MalformedMessage:
            fault = "the embedded consumer protocol is malformed"
        except OwnAssignor:
            fault = (
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade"
            )
    if fault is not None:
        message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {fault}."
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)
    group_id, members = group.group_id, group.members.values()
    changes: list[Change] = [
        *classic.tombstones(),
        *(member_change(group_id, member) for member in members),
        epoch_change(group_id, group.epoch, group.metadata_hash),
        *(target_change(group_id, member_id, target) for member_id, target in group.targets.items()),
        target_epoch_change(group_id, group.assignment_epoch, group.assignment_ms),
        *(current_change(group_id, member) for member in members),
    ]
    return ConsumerGroupForHeartbeat(group, changes, classic)


class OwnAssignor(Exception):
    """The members use an assignor of their own: its assignment has user data, which an upgrade would lose."""


def _from_classic(classic: ClassicGroup, image: CoordinatorImage) -> ConsumerGroup:
    """The consumer group with the members, the generation and the assignments of a classic group.

    DIVERGES: a member that has joined and has no assignment yet also keeps the partitions that its subscription says it
    owns. In Apache Kafka 4.3.1 these are free, and another member gets them at once, while a cooperative member still
    has them.

    Raises `MalformedMessage` if a subscription or an assignment cannot be read, and `OwnAssignor`.
    """
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = epoch = classic.generation
    for member_id, member in classic.members.items():
        group.targets[member_id] = _assignment_of(member, image)
    taken = {(topic, index) for target in group.targets.values() for topic in target for index in target[topic]}
    for member in classic.members.values():
        subscription = read_subscription(member.metadata_of(classic.protocol_name))
        assigned = {topic: {*indexes} for topic, indexes in group.targets[member.member_id].items()}
        for topic, indexes in partitions_by_id(subscription.owned_partitions, image).items():
            kept = {index for index in indexes if (topic, index) not in taken}
            taken.update((topic, index) for index in kept)
            if kept:
                assigned.setdefault(topic, set()).update(kept)
        group.put_member(
            ConsumerMember(
                member.member_id,
                member.group_instance_id,
                subscription.rack_id or None,
                member.client_id,
                member.client_host,
                frozenset(subscription.topics),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicMember(
                    member.session_timeout_ms,
                    tuple((protocol.name, bytes(protocol.metadata)) for protocol in member.protocols),
                ),
                epoch=epoch,
                previous_epoch=epoch,
                assigned={topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in assigned.items()},
            )
        )
    group.metadata_hash = hash_of_topics(group.subscriptions.topics, image)
    return group


def _assignment_of(member: Member, image: CoordinatorImage) -> Assignment:
    """The partitions that the leader assigned to a member last, by topic id. Raises `MalformedMessage` if the
    assignment cannot be read, and `OwnAssignor`."""
    if member.assignment == NO_ASSIGNMENT:
        return NOTHING
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise OwnAssignor
    return partitions_by_id(assignment.assigned_partitions, image)


# Downgrade


class DowngradeWriteOutcome(NamedTuple):
    """The outcome of the records of a downgrade. If the log refuses them, the former consumer group is put back."""

    former: ConsumerGroup
    group: ClassicGroup

    def on_committed(self, step: GroupStep) -> None:
        pass

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT and step.groups.get(self.group.group_id) is self.group:
            step.groups[self.group.group_id] = self.former


def downgrade_without_members(step: GroupStep, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Convert the group into a classic one, if all members apart from `leaving` use the classic protocol. Returns
    whether the group was converted."""
    gone = {member.member_id for member in leaving}
    left = [member for member in group.members.values() if member.member_id not in gone]
    if not left or any(member.classic is None for member in left) or not _may_downgrade(step, len(left)):
        return False
    tombstones = group_tombstones(group.group_id, group.members, group.resolved)
    classic = _turn_classic(step, group, left, tombstones, group.targets)
    if classic is None:
        return False
    prepare_rebalance(step, classic, step.add_to_history(classic.group_id, Cause.BECAME_CLASSIC))
    return True


def downgrade_with_replaced_member(
    step: GroupStep, group: ConsumerGroup, joining: ConsumerMember, *, is_rebalance: bool
) -> bool:
    """Convert the group into a classic one, when a static member of the classic protocol replaces the last member of
    the consumer protocol. Returns whether the group was converted.

    DIVERGES: Apache Kafka's batch first writes the records that put the new member into the consumer group, and then
    removes them; this batch has neither.
    """
    replaced = group.static_members[joining.instance_id or ""]
    members = [joining if member_id == replaced else member for member_id, member in group.members.items()]
    targets = {joining.member_id if member_id == replaced else member_id: t for member_id, t in group.targets.items()}
    tombstones = group_tombstones(group.group_id, group.members, group.resolved)
    classic = _turn_classic(step, group, members, tombstones, targets)
    if classic is None:
        return False
    if is_rebalance:
        prepare_rebalance(step, classic, step.add_to_history(classic.group_id, Cause.BECAME_CLASSIC))
    return True


def may_downgrade_with_replaced_member(step: GroupStep, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """Whether `replaced` is the only member of the consumer protocol, and the group may become a classic one without
    it."""
    others_are_classic = group.classic_members_count == len(group.members) - 1 and replaced.classic is None
    return others_are_classic and _may_downgrade(step, len(group.members))


def _may_downgrade(step: GroupStep, members_count: int) -> bool:
    return step.config.consumer.migration_policy.is_downgrade_enabled and members_count <= step.config.max_size


def _turn_classic(
    step: GroupStep,
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    tombstones: Sequence[Change],
    targets: dict[str, Assignment],
) -> ClassicGroup | None:
    """Write the records of the classic group, and put it in the place of the consumer group at once: a rebalance is not
    in the log. Returns None if the subscription of a member cannot be read.

    DIVERGES: in that case the group stays a consumer group, and the member leaves it; Apache Kafka refuses the leave
    with GROUP_ID_NOT_FOUND, and the member stays.
    """
    classic = ClassicGroup(group.group_id, step.wall_ms)
    classic.generation = group.epoch
    try:
        for member in members:
            classic.add(_classic_member(member))
        classic.protocol_name = classic.select_protocol()
        for member_id, classic_member in classic.members.items():
            version = read_version(classic_member.metadata_of(classic.protocol_name))
            classic_member.assignment = written_assignment(targets.get(member_id, NOTHING), version, step.image)
    except MalformedMessage as malformed:
        step.note(group, f"it cannot become a classic group: {malformed}")
        return None
    classic.state = STABLE
    classic.update_subscribed_topics()
    classic.visible_from = group.visible_from
    assignments = {member_id: member.assignment for member_id, member in classic.members.items()}
    step.write(*tombstones, generation_change(classic, assignments))
    for key in group.timers:
        step.timers.cancel(key)
    step.groups[group.group_id] = classic
    step.when_committed(DowngradeWriteOutcome(group, classic))
    for classic_member in classic.members.values():
        expect_heartbeat(step, classic, classic_member)
    step.note(classic, "it becomes a classic group")
    return classic


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None, "only members of the classic protocol are left"
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in member.classic.protocols],
    )
