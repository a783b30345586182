"""Members that leave a streams group or are removed from it, and the timers that remove them."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.streams.events import StreamsTimer
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member, MemberState
from moldau.coordinator.streams.records import epoch_change, member_tombstones
from moldau.coordinator.streams.settings import settings_of
from moldau.coordinator.streams.target import compute_targets, is_too_early, target_changes

STANDBYS_CONFIG: Final = "num.standby.replicas"


def remove_member(step: GroupStep, group: StreamsGroup, member: Member) -> None:
    """Remove a member and raise the epoch of the group. The next heartbeat of another member computes the target."""
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
        ),
    )


def timer_fired(step: GroupStep, group: StreamsGroup, key: TimerKey) -> None:
    """A timer of a member that has moved on does nothing."""
    if key.kind is StreamsTimer.INITIAL_REBALANCE:
        assign_first(step, group)
        return
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.kind is StreamsTimer.SESSION:
        step.note(group, f"member {member.member_id!r} is removed: its session expired")
        remove_member(step, group, member)
    elif member.state is MemberState.UNREVOKED_TASKS:
        step.note(group, f"member {member.member_id!r} is removed: it did not revoke its tasks in time")
        remove_member(step, group, member)


def assign_first(step: GroupStep, group: StreamsGroup) -> None:
    """Compute the first target, after the delay in which members could join.

    A coordinator that has not configured the topology leaves it to the next heartbeat, as Apache Kafka does: of a group
    that one heartbeat created, only the records remain.
    """
    configured = group.configured
    if group.is_empty or group.epoch <= group.assignment_epoch or configured is None:
        return
    settings = settings_of(step.config.streams, step.image.group_settings(group.group_id))
    if is_too_early(group, settings, step.wall_ms):
        return
    standby_replicas = int(group.assignment_configs.get(STANDBYS_CONFIG, "0"))
    targets = compute_targets(group.targets, group.members, configured, standby_replicas)
    step.write(*target_changes(group, group.epoch, targets, step.wall_ms))


def loaded(step: GroupStep, group: StreamsGroup) -> None:
    """Begin the sessions anew, so that the members have time to find this coordinator."""
    settings = settings_of(step.config.streams, step.image.group_settings(group.group_id))
    for member in group.members.values():
        step.schedule(StreamsTimer.SESSION, group, settings.session_timeout_ms, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            step.schedule(StreamsTimer.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)


def unloaded(_step: GroupStep, _group: StreamsGroup) -> None:
    """No request of a streams group is parked; those that wait for a commit are refused by the shard."""
