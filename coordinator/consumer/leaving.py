"""Removes members from a consumer group: members that leave, and members whose timers are due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from moldau.coordinator.consumer.conversion import downgrade_without_members
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer, settings_of
from moldau.coordinator.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    pattern_of,
)
from moldau.coordinator.consumer.records import current_change, epoch_change, member_tombstones, regex_tombstone
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.membership import LEAVE_STATIC_EPOCH
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change

MEMBER_TIMERS = (ConsumerTimer.SESSION, ConsumerTimer.REBALANCE, ConsumerTimer.JOIN, ConsumerTimer.SYNC)
REMOVALS = {
    ConsumerTimer.SESSION: Cause.SESSION_EXPIRED,
    ConsumerTimer.REBALANCE: Cause.REVOKE_TIMED_OUT,
    ConsumerTimer.JOIN: Cause.JOIN_TIMED_OUT,
    ConsumerTimer.SYNC: Cause.SYNC_TIMED_OUT,
}
"""The cause of a member's removal, by the timer that is due."""


def remove_members(step: GroupStep, group: ConsumerGroup, members: Sequence[ConsumerMember], cause: Cause) -> None:
    """Remove members and raise the group epoch. If all remaining members use the classic protocol and a downgrade is
    allowed, convert the group into a classic group instead."""
    if not members:
        return
    session_ms = settings_of(step, group.group_id).session_timeout_ms
    for member in members:
        if cause is Cause.SESSION_EXPIRED:
            limit_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
        else:
            limit_ms = member.rebalance_timeout_ms
        told = step.add_to_history(group.group_id, cause, member, number=0 if cause is Cause.LEFT else limit_ms)
        step.note(group, told.text)
        for kind in MEMBER_TIMERS:
            step.cancel(kind, group, member.member_id)
    if downgrade_without_members(step, group, members):
        return
    changes: list[Change] = []
    for member in members:
        changes += member_tombstones(group.group_id, member.member_id)
    gone = Counter(pattern for member in members if (pattern := pattern_of(member)) is not None)
    by_name = Counter(group.subscriptions.by_name)
    by_regex = Counter(group.subscriptions.by_regex)
    for member in members:
        by_name.subtract(member.subscribed_topics)
    for regex, count in gone.items():
        if group.subscriptions.regexes[regex] == count:
            changes.append(regex_tombstone(group.group_id, regex))
            if regex in group.resolved:
                by_regex.subtract(group.resolved[regex].topics)
    topics = {*+by_name, *+by_regex}
    changes.append(epoch_change(group.group_id, group.epoch + 1, hash_of_topics(topics, step.image)))
    step.add_rebalance_to_history(group.group_id, told, group.epoch + 1)
    step.write(*changes)


def temporary_leave_changes(group: ConsumerGroup, member: ConsumerMember) -> list[Change]:
    """The records of a static member that leaves for a restart and will return under another id. The partitions stay
    reserved for the instance id until the session ends. Their epochs become 0, so that the returning member may commit
    offsets of them with any member epoch.
    """
    kept = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
    away = replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=kept, revoking=NO_PARTITIONS)
    return [current_change(group.group_id, away)]


def on_timer(step: GroupStep, group: ConsumerGroup, key: TimerKey) -> None:
    """Remove the member whose timer is due. A due rebalance timer does nothing if the member has revoked its
    partitions."""
    member = group.members.get(key.member_id)
    if member is None or not isinstance(key.kind, ConsumerTimer):
        return
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVE_STATIC_EPOCH
    if key.kind is not ConsumerTimer.REBALANCE or is_revoking:
        remove_members(step, group, [member], REMOVALS[key.kind])


def on_loaded(step: GroupStep, group: ConsumerGroup) -> None:
    """Begin the sessions of all members when the partition is loaded, so that the members have time to find this
    coordinator."""
    settings = settings_of(step, group.group_id)
    for member in group.members.values():
        step.schedule(ConsumerTimer.SESSION, group, settings.session_timeout_ms, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            step.schedule(ConsumerTimer.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)
