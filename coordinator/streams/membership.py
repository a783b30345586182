"""Removes members from a streams group: members that leave, and members whose timers are due. Also replaces an empty
group when its application returns to the classic protocol.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.coordinator.classic.events import Join
from moldau.coordinator.classic.group import ClassicGroup, classic_group
from moldau.coordinator.classic.join import join_group, refuse_other_kind
from moldau.coordinator.classic.rebalance import refuse_join
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.history import Cause, GroupEvent
from moldau.coordinator.group.target import is_too_early, targets_if_small
from moldau.coordinator.runtime.step import write_error
from moldau.coordinator.streams.events import StreamsTimer
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member, MemberState
from moldau.coordinator.streams.records import epoch_change, member_tombstones
from moldau.coordinator.streams.target import StreamsTargetInputs, target_changes
from moldau.protocol.errors import ErrorCode

STANDBYS_CONFIG: Final = "num.standby.replicas"


def remove_member(step: GroupStep, group: StreamsGroup, member: Member, cause: GroupEvent) -> None:
    """Remove a member and raise the epoch of the group. The next heartbeat of another member computes the new
    target."""
    for kind in (StreamsTimer.SESSION, StreamsTimer.REBALANCE):
        step.cancel(kind, group, member.member_id)
    step.write(
        *member_tombstones(group.group_id, member.member_id),
        epoch_change(
            group.group_id,
            group.epoch + 1,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
            group.description_epochs,
        ),
    )
    step.add_rebalance_to_history(group.group_id, cause, group.epoch + 1)


def on_timer(step: GroupStep, group: StreamsGroup, key: TimerKey) -> None:
    """Handle a due timer: compute the first target, or remove the member. A timer of a revocation does nothing if the
    member has no tasks left to revoke."""
    if key.kind is StreamsTimer.INITIAL_REBALANCE:
        compute_first_target(step, group)
        return
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.kind is StreamsTimer.SESSION:
        settings = step.config.streams.of_group(step.image.group_settings(group.group_id))
        cause, limit_ms = Cause.SESSION_EXPIRED, settings.session_timeout_ms
    elif member.state is MemberState.UNREVOKED_TASKS:
        cause, limit_ms = Cause.REVOKE_TIMED_OUT, member.rebalance_timeout_ms
    else:
        return
    told = step.add_to_history(group.group_id, cause, member, number=limit_ms)
    step.note(group, told.text)
    remove_member(step, group, member, told)


def compute_first_target(step: GroupStep, group: StreamsGroup) -> None:
    """Compute the first target of a group, at the end of the initial delay in which members could join.

    If this coordinator has not configured the topology, the next heartbeat computes the target, as in Apache Kafka.
    That is so if the group has had only one heartbeat, because the replay of its records creates the group object anew.
    """
    configured = group.configured
    if group.is_empty or group.epoch <= group.assignment_epoch or configured is None:
        return
    settings = step.config.streams.of_group(step.image.group_settings(group.group_id))
    if is_too_early(group.assignment_ms, settings.assignment_interval_ms, step.wall_ms):
        return
    standby_replicas = int(group.assignment_configs.get(STANDBYS_CONFIG, "0"))
    inputs = StreamsTargetInputs({**group.targets}, {**group.members}, configured, standby_replicas)
    targets = targets_if_small(step, TimerKey(StreamsTimer.TARGET, group.group_id), group.epoch, inputs)
    if targets is not None:
        step.write(*target_changes(group, group.epoch, targets, step.wall_ms))


def join_classic(step: GroupStep, group: StreamsGroup, event: Join) -> None:
    """Handle a JoinGroup for a streams group. An empty group is replaced by a classic group, if the latter accepts the
    join."""
    if not group.is_empty:
        refuse_other_kind(step, event)
        return
    del step.groups[group.group_id]
    join_group(step, None, event)
    classic = classic_group(step.groups, group.group_id)
    if classic is None:
        step.groups[group.group_id] = group
        return
    classic.visible_from = group.visible_from
    step.changes[:0] = group.tombstones()
    for key in group.timers:
        step.timers.cancel(key)
    step.when_committed(StreamsGroupReplaced(group, classic))


class StreamsGroupReplaced(NamedTuple):
    """The outcome of the tombstones of an empty streams group that a classic group replaces. If the log refuses them,
    the streams group is put back."""

    former: StreamsGroup
    classic: ClassicGroup

    def on_committed(self, step: GroupStep) -> None:
        pass

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT and step.groups.get(self.former.group_id) is self.classic:
            step.groups[self.former.group_id] = self.former
            for member in self.classic.members.values():
                refuse_join(step, self.classic, member, write_error(error), member.member_id)
            for key in self.classic.timers:
                step.timers.cancel(key)


def on_loaded(step: GroupStep, group: StreamsGroup) -> None:
    """Begin the sessions of all members when the partition is loaded, so that the members have time to find this
    coordinator."""
    group.find_owners()
    settings = step.config.streams.of_group(step.image.group_settings(group.group_id))
    for member in group.members.values():
        step.schedule(StreamsTimer.SESSION, group, settings.session_timeout_ms, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            step.schedule(StreamsTimer.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)
