"""The join phase of a rebalance: how it begins, how long it lasts, and how it ends in a new generation.

The module also has the functions that all requests of classic groups use: for the records of a generation, the sessions
of members, and the responses to parked requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.classic.events import AnswerHeartbeats, ClassicTimer
from moldau.coordinator.classic.group import (
    COMPLETING,
    EMPTY,
    HEARTBEAT_ANSWERS,
    NO_ASSIGNMENT,
    PREPARING,
    STABLE,
    ClassicGroup,
    Member,
)
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.history import Cause, GroupEvent
from moldau.coordinator.group.records import NO_TIMESTAMP, RecordChange
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata

NULL_PROTOCOL_VERSION: Final = 7
"""From this version of JoinGroup on, a missing protocol name is null; before, it is empty."""


def generation_change(group: ClassicGroup, assignments: Mapping[str, bytes]) -> RecordChange:
    """The record of the current generation. `assignments` has the assignment of every member by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=NO_TIMESTAMP if group.changed_ms is None else group.changed_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return RecordChange(group.group_id, GroupMetadataKey(group=group.group_id), value)


def new_group_change(group: ClassicGroup) -> RecordChange:
    """The first record of a new group, which has no generation yet."""
    changed_ms = NO_TIMESTAMP if group.changed_ms is None else group.changed_ms
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=changed_ms
    )
    return RecordChange(group.group_id, GroupMetadataKey(group=group.group_id), value)


def expect_heartbeat(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """Restart the session timer of a member, because it sent a request, or because a delayed response was sent to
    it."""
    step.schedule(ClassicTimer.SESSION, group, member.session_timeout_ms, member.member_id)


def join_refusal(version: int, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    name = None if version >= NULL_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=error, protocol_name=name, leader="", member_id=member_id)


def join_response(group: ClassicGroup, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    """The response to a join with the group's generation. For the leader of a new generation (`with_members`) it also
    lists all members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.described_members() if with_members else [],
    )


def refuse_join(step: GroupStep, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
    """Answer the member's parked join, if it has one, with an error. `member_id` is the id in the response."""
    waiter = group.take_join(member)
    if waiter is not None:
        step.reply(waiter, join_refusal(waiter.version, error, member_id))


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The SyncGroup response with the member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=NO_ASSIGNMENT)


def answer_syncs(step: GroupStep, group: ClassicGroup) -> None:
    """Answer every parked sync with the assignment of its member, and restart that member's session."""
    for member in group.members.values():
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            step.reply(waiter, sync_response(group, member))
            expect_heartbeat(step, group, member)


def refuse_syncs(step: GroupStep, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer all parked syncs with an error, and clear the assignments of all members."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            step.reply(waiter, sync_refusal(error))
            expect_heartbeat(step, group, member)


def refuse_sync(step: GroupStep, member: Member, error: ErrorCode) -> None:
    """Answer the member's parked sync, if it has one, with an error."""
    waiter, member.syncing = member.syncing, None
    if waiter is not None:
        step.reply(waiter, sync_refusal(error))


def rebalance(step: GroupStep, group: ClassicGroup, cause: GroupEvent) -> None:
    """Handle a change of the group's members or protocols: start a rebalance, or end the current join phase if every
    member has joined."""
    if group.state is PREPARING:
        complete_if_all_joined(step, group)
    else:
        prepare_rebalance(step, group, cause)


def prepare_rebalance(step: GroupStep, group: ClassicGroup, cause: GroupEvent) -> None:
    """Move the group from any other state to PreparingRebalance."""
    step.note(group, f"generation {group.generation} ends in state {group.state.value}: {cause.text}")
    step.add_rebalance_to_history(group.group_id, cause, group.generation)
    if group.state is COMPLETING:
        refuse_syncs(step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    step.cancel(ClassicTimer.SYNC, group)
    if group.state is STABLE:
        step.command(AnswerHeartbeats(group.group_id, HEARTBEAT_ANSWERS[PREPARING]))
    is_first = group.state is EMPTY
    group.move_to(PREPARING, step.wall_ms)
    if is_first:
        group.grew = False
        group.delay_ms = step.config.initial_rebalance_delay_ms
        group.remaining_delay_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        step.schedule(ClassicTimer.JOIN, group, group.delay_ms)
    elif group.has_all_joins:
        complete_join(step, group)
    else:
        step.schedule(ClassicTimer.JOIN, group, group.rebalance_timeout_ms)


def is_first_rebalance(group: ClassicGroup) -> bool:
    return group.state is PREPARING and group.former_state is EMPTY


def complete_if_all_joined(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase if every member has joined.

    The first rebalance of an empty group is not ended: it always lasts for its initial delay.
    """
    if group.state is PREPARING and not is_first_rebalance(group) and group.has_all_joins:
        complete_join(step, group)


def on_join_timeout(step: GroupStep, group: ClassicGroup) -> None:
    """Handle the end of the join timer: end the join phase, or extend the initial delay of the group's first rebalance.

    The initial delay is extended if members joined during it, but in total it is at most the rebalance timeout.
    """
    assert group.state is PREPARING, "the join timer runs in the join phase"
    if is_first_rebalance(group) and group.grew and group.remaining_delay_ms > 0:
        group.grew = False
        delay_ms = min(step.config.initial_rebalance_delay_ms, group.remaining_delay_ms)
        group.remaining_delay_ms = max(group.remaining_delay_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        step.schedule(ClassicTimer.JOIN, group, delay_ms)
    else:
        complete_join(step, group)


def complete_join(step: GroupStep, group: ClassicGroup) -> None:
    """End the join phase: remove the members that have not joined, except static ones, begin a generation and answer
    the joins.

    The group moves to CompletingRebalance, or to Empty if no member is left. If only static members are left and none
    has joined, the join phase continues instead.
    """
    step.cancel(ClassicTimer.JOIN, group)
    for member in list(group.members.values()):
        if member.joining is None and not member.is_static:
            step.add_to_history(group.group_id, Cause.JOIN_TIMED_OUT, member, number=group.rebalance_timeout_ms)
            step.cancel(ClassicTimer.SESSION, group, member.member_id)
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has joined. The join phase lasts until their sessions end.
        step.schedule(ClassicTimer.JOIN, group, group.rebalance_timeout_ms)
        return
    group.begin_generation(step.wall_ms)
    step.rebalances.completed += 1
    if not group.members:
        step.note(group, f"generation {group.generation} is empty")
        step.write(generation_change(group, {}))
        return
    step.note(group, f"generation {group.generation} begins with {len(group.members)} members")
    step.add_to_history(group.group_id, Cause.REBALANCE_ENDED, number=group.generation, detail=str(len(group.members)))
    for member in group.members.values():
        waiter = group.take_join(member)
        if waiter is not None:
            is_leader = member.member_id == group.leader_id
            step.reply(waiter, join_response(group, member.member_id, with_members=is_leader))
        expect_heartbeat(step, group, member)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    step.schedule(ClassicTimer.SYNC, group, group.rebalance_timeout_ms)


def on_sync_timeout(step: GroupStep, group: ClassicGroup) -> None:
    """Handle the end of the sync timer: remove the members of the generation that sent no SyncGroup, and begin a
    rebalance."""
    if not group.pending_syncs:
        return
    for member_id in list(group.pending_syncs):
        silent = group.members[member_id]
        cause = step.add_to_history(group.group_id, Cause.SYNC_TIMED_OUT, silent, number=group.rebalance_timeout_ms)
        step.cancel(ClassicTimer.SESSION, group, member_id)
        group.remove(member_id)
    prepare_rebalance(step, group, cause)


def remove_member(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """Remove a member. Its parked requests are answered with UNKNOWN_MEMBER_ID, so that the client joins as a new
    member."""
    refuse_join(step, group, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
    refuse_sync(step, member, ErrorCode.UNKNOWN_MEMBER_ID)
    step.cancel(ClassicTimer.SESSION, group, member.member_id)
    group.remove(member.member_id)
