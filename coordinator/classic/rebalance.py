"""The join phase of a rebalance: its beginning, its length, and its end in a new generation."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.group_state import COMPLETING, EMPTY, PREPARING
from moldau.coordinator.classic.member import Member
from moldau.coordinator.classic.records import generation_change
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.classic.sync_answers import refuse_sync, refuse_syncs
from moldau.coordinator.group.step import GroupStep, TimerKind
from moldau.coordinator.runtime.effects import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponse

NULL_PROTOCOL_VERSION: Final = 7
"""From this version of JoinGroup on, a missing protocol name is null; before, it is empty."""


def join_refusal(waiter: Waiter, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    name = None if waiter.version >= NULL_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=error, protocol_name=name, leader="", member_id=member_id)


def join_response(group: ClassicGroup, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    """The response to a join: the generation; for the leader of a new generation also all members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.described_members() if with_members else [],
    )


def refuse_join(step: GroupStep, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer the member's parked join, if there is one."""
    waiter = group.take_join(member)
    if waiter is not None:
        step.reply(waiter, join_refusal(waiter, error, member_id))


def rebalance(step: GroupStep, group: ClassicGroup, reason: str) -> None:
    """Handle a change of the group: start a rebalance, or complete the current join phase if no join is missing any
    more.
    """
    if group.state is PREPARING:
        complete_if_all_joined(step, group)
    else:
        prepare_rebalance(step, group, reason)


def prepare_rebalance(step: GroupStep, group: ClassicGroup, reason: str) -> None:
    """Move the group from any other state to PreparingRebalance."""
    step.note(group, f"generation {group.generation} ends in state {group.state.value}: {reason}")
    if group.state is COMPLETING:
        refuse_syncs(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    step.cancel(TimerKind.SYNC, group)
    is_first = group.state is EMPTY
    group.move_to(PREPARING, step.wall_ms)
    if is_first:
        group.grew = False
        group.delay_ms = step.config.initial_rebalance_delay_ms
        group.remaining_delay_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        step.schedule(TimerKind.JOIN, group, group.delay_ms)
    elif group.has_all_joins:
        complete_join(step, group)
    else:
        step.schedule(TimerKind.JOIN, group, group.rebalance_timeout_ms)


def is_first_rebalance(group: ClassicGroup) -> bool:
    return group.state is PREPARING and group.former_state is EMPTY


def complete_if_all_joined(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase if no join is missing.

    The first rebalance of an empty group always lasts for its initial delay.
    """
    if group.state is PREPARING and not is_first_rebalance(group) and group.has_all_joins:
        complete_join(step, group)


def join_timed_out(step: GroupStep, group: ClassicGroup) -> None:
    """Handle the join timer.

    Members that joined during the initial delay extend it, at most up to the rebalance timeout.
    """
    assert group.state is PREPARING, "the join timer runs in the join phase"
    if is_first_rebalance(group) and group.grew and group.remaining_delay_ms > 0:
        group.grew = False
        delay_ms = min(step.config.initial_rebalance_delay_ms, group.remaining_delay_ms)
        group.remaining_delay_ms = max(group.remaining_delay_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        step.schedule(TimerKind.JOIN, group, delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """Move the group from PreparingRebalance to CompletingRebalance, or to Empty where no member is left."""
    step.cancel(TimerKind.JOIN, group)
    for member in list(group.members.values()):
        if member.joining is None and not member.is_static:
            step.cancel(TimerKind.SESSION, group, member.member_id)
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has joined. The join phase lasts until their sessions end.
        step.schedule(TimerKind.JOIN, group, group.rebalance_timeout_ms)
        return
    group.begin_generation(step.wall_ms)
    step.rebalances.completed += 1
    if not group.members:
        step.note(group, f"generation {group.generation} is empty")
        step.write(generation_change(group, {}))
        return
    step.note(group, f"generation {group.generation} begins with {len(group.members)} members")
    for member in group.members.values():
        waiter = group.take_join(member)
        if waiter is not None:
            is_leader = member.member_id == group.leader_id
            step.reply(waiter, join_response(group, member.member_id, with_members=is_leader))
        expect_heartbeat(step, group, member)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    step.schedule(TimerKind.SYNC, group, group.rebalance_timeout_ms)


def sync_timed_out(step: GroupStep, group: ClassicGroup) -> None:
    """Handle the sync timer: remove the members that joined the generation and sent no SyncGroup."""
    if not group.pending_syncs:
        return
    silent = list(group.pending_syncs)
    for member_id in silent:
        step.cancel(TimerKind.SESSION, group, member_id)
        group.remove(member_id)
    prepare_rebalance(step, group, f"{len(silent)} members did not sync, {silent[0]!r} among them")


def remove_member(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """Remove a member; its parked requests are answered with UNKNOWN_MEMBER_ID, so that the client joins anew."""
    refuse_join(step, group, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
    refuse_sync(step, member, ErrorCode.UNKNOWN_MEMBER_ID)
    step.cancel(TimerKind.SESSION, group, member.member_id)
    group.remove(member.member_id)
