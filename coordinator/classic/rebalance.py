"""The join phase of a rebalance: how it begins, how long it lasts, how it ends in a new generation."""

from __future__ import annotations

from coordinator.classic.assignment import share_refusal
from coordinator.classic.group import Group
from coordinator.classic.group_state import COMPLETING, EMPTY, PREPARING
from coordinator.classic.member import Member
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.records import generation_change
from coordinator.group.step import Turn
from coordinator.runtime.effects import Waiter
from coordinator.runtime.timers import TimerKind
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse

NAMED_PROTOCOL_VERSION = 7
"""From this version of JoinGroup on, no protocol is null; it was empty before."""


def join_refusal(waiter: Waiter, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    name = None if waiter.version >= NAMED_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=error, protocol_name=name, leader="", member_id=member_id)


def joined(group: Group, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    """The generation as a member sees it."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.described_members() if with_members else [],
    )


def refuse_join(turn: Turn, group: Group, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer the member's parked join, if there is one."""
    waiter = group.take_join(member)
    if waiter is not None:
        turn.reply(waiter, join_refusal(waiter, error, member_id))


def rebalance_or_go_on(turn: Turn, group: Group, reason: str) -> None:
    """Something changed: start a rebalance, or see whether this was what the one under way waited for."""
    if group.state is PREPARING:
        complete_if_all_joined(turn, group)
    else:
        prepare_rebalance(turn, group, reason)


def prepare_rebalance(turn: Turn, group: Group, reason: str) -> None:
    """Any state but PreparingRebalance → PreparingRebalance."""
    turn.note(group, f"generation {group.generation} ends in state {group.state.value}: {reason}")
    if group.state is COMPLETING:
        share_refusal(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    turn.cancel(TimerKind.SYNC, group)
    is_first = group.state is EMPTY
    turn.move(group, PREPARING)
    if is_first:
        group.grew = False
        group.delay_ms = turn.config.initial_rebalance_delay_ms
        group.remaining_delay_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        turn.schedule(TimerKind.JOIN, group, group.delay_ms)
    elif group.is_known_to_all:
        complete_join(turn, group)
    else:
        turn.schedule(TimerKind.JOIN, group, group.rebalance_timeout_ms)


def is_first_rebalance(group: Group) -> bool:
    return group.state is PREPARING and group.former_state is EMPTY


def complete_if_all_joined(turn: Turn, group: Group) -> None:
    """The first rebalance of an empty group lasts as long as its delay, whoever is there."""
    if group.state is PREPARING and not is_first_rebalance(group) and group.is_known_to_all:
        complete_join(turn, group)


def join_time_is_up(turn: Turn, group: Group) -> None:
    """The join timer fired. Each newcomer during the initial delay prolongs it, up to the rebalance timeout."""
    assert group.state is PREPARING, "the join timer runs in the join phase"
    if is_first_rebalance(group) and group.grew and group.remaining_delay_ms > 0:
        group.grew = False
        delay_ms = min(turn.config.initial_rebalance_delay_ms, group.remaining_delay_ms)
        group.remaining_delay_ms = max(group.remaining_delay_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        turn.schedule(TimerKind.JOIN, group, delay_ms)
    else:
        complete_join(turn, group)


def complete_join(turn: Turn, group: Group) -> None:
    """PreparingRebalance → CompletingRebalance, or Empty where nobody is left."""
    turn.cancel(TimerKind.JOIN, group)
    for member in list(group.members.values()):
        if member.joining is None and not member.is_static:
            turn.cancel(TimerKind.SESSION, group, member.member_id)
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members, and none of them is back: wait until their sessions end.
        turn.schedule(TimerKind.JOIN, group, group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.wall_ms)
    turn.completed_rebalances += 1
    if not group.members:
        turn.note(group, f"generation {group.generation} is empty")
        turn.write(generation_change(group, {}))
        return
    turn.note(group, f"generation {group.generation} begins with {len(group.members)} members")
    for member in group.members.values():
        waiter = group.take_join(member)
        if waiter is not None:
            is_leader = member.member_id == group.leader_id
            turn.reply(waiter, joined(group, member.member_id, with_members=is_leader))
        expect_heartbeat(turn, group, member)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    turn.schedule(TimerKind.SYNC, group, group.rebalance_timeout_ms)


def sync_time_is_up(turn: Turn, group: Group) -> None:
    """Members that joined the generation and never asked for their share are out."""
    if not group.pending_syncs:
        return
    silent = list(group.pending_syncs)
    for member_id in silent:
        turn.cancel(TimerKind.SESSION, group, member_id)
        group.remove(member_id)
    prepare_rebalance(turn, group, f"{len(silent)} members did not sync, {silent[0]!r} among them")


def remove_member(turn: Turn, group: Group, member: Member) -> None:
    """Take a member out, answering what it waits for: it may ask again, as somebody new."""
    refuse_join(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
    share_refusal(turn, group, ErrorCode.UNKNOWN_MEMBER_ID, member)
    turn.cancel(TimerKind.SESSION, group, member.member_id)
    group.remove(member.member_id)
