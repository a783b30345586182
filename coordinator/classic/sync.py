"""SyncGroup: the leader sends the assignment of a generation, and each response has the assignment of one member."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.coordinator.classic.events import ClassicTimer, Sync
from moldau.coordinator.classic.group import (
    COMPLETING,
    DEAD,
    EMPTY,
    NO_ASSIGNMENT,
    PREPARING,
    STABLE,
    ClassicGroup,
    classic_group,
)
from moldau.coordinator.classic.rebalance import (
    answer_syncs,
    expect_heartbeat,
    generation_change,
    rebalance,
    refuse_sync,
    refuse_syncs,
    sync_refusal,
    sync_response,
)
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.history import Cause
from moldau.coordinator.runtime.step import write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupRequest


class SyncAction(Enum):
    PARK = auto()
    """Park the sync until the leader sends the assignment."""
    STORE = auto()
    """Park the leader's sync, and append its assignment to the log."""
    ANSWER = auto()
    """Respond with the member's assignment."""


PARK, STORE, ANSWER = SyncAction

SYNC_ANSWERS: Final = {
    # The columns: a follower, the leader.
    EMPTY: (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
    PREPARING: (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS),
    COMPLETING: (PARK, STORE),
    STABLE: (ANSWER, ANSWER),
    DEAD: (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
}
"""The action or the error for a sync with the right member id, generation and protocol, by the group's state. The first
of each pair is for a follower, the second for the leader."""

NAMED_PROTOCOL_VERSION: Final = 5
"""From this version of SyncGroup on, the request has the protocol type and name of the generation."""


class AssignmentWriteOutcome(NamedTuple):
    """The outcome of the record with the leader's assignment.

    Once it is committed, the group moves from CompletingRebalance to Stable, unless another rebalance has begun.
    """

    group_id: str
    generation: int
    assignments: dict[str, bytes]

    def on_committed(self, step: GroupStep) -> None:
        group = self._awaiting(step)
        if group is None:
            return
        for member in group.members.values():
            member.assignment = self.assignments.get(member.member_id, NO_ASSIGNMENT)
        group.move_to(STABLE, step.wall_ms)
        step.note(group, f"generation {group.generation} is stable")
        answer_syncs(step, group)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        group = self._awaiting(step)
        if group is not None:
            refuse_syncs(step, group, write_error(error))
            rebalance(step, group, step.add_to_history(group.group_id, Cause.NOT_STORED, detail=error.name))

    def _awaiting(self, step: GroupStep) -> ClassicGroup | None:
        """The group, if it is still in the generation that waits for this assignment; None otherwise."""
        group = classic_group(step.groups, self.group_id)
        if group is None or group.state is not COMPLETING or group.generation != self.generation:
            return None
        return group


def sync_group(step: GroupStep, group: ClassicGroup | None, event: Sync) -> None:
    request = event.request
    error = sync_error(group, request, event.waiter.version)
    if error is not ErrorCode.NONE or group is None:
        step.reply(event.waiter, sync_refusal(error))
        return
    member = group.members[request.member_id]
    answer = SYNC_ANSWERS[group.state][member.member_id == group.leader_id]
    if isinstance(answer, ErrorCode):
        step.reply(event.waiter, sync_refusal(answer))
        return
    mark_synced(step, group, request.member_id)
    if answer is ANSWER:
        expect_heartbeat(step, group, member)
        step.reply(event.waiter, sync_response(group, member))
        return
    # DIVERGES: Apache Kafka drops the earlier of two parked syncs without a response; here its client is told to try
    # again.
    refuse_sync(step, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.syncing = event.waiter
    if answer is STORE:
        store_assignment(step, group, request)


def sync_error(group: ClassicGroup | None, request: SyncGroupRequest, version: int) -> ErrorCode:
    if version >= NAMED_PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = group.member_error(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if names_other_protocol(request.protocol_type, group.protocol_type) or names_other_protocol(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def names_other_protocol(named: str | None, actual: str | None) -> bool:
    """Whether the protocol type or name of a request differs from the group's. If either is None, they do not
    differ."""
    return named is not None and actual is not None and named != actual


def store_assignment(step: GroupStep, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Store the leader's assignment. A member that the leader left out gets an empty one; assignments to clients
    outside the group are dropped."""
    assigned = {part.member_id: part.assignment for part in request.assignments}
    assignments = {member_id: assigned.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
    step.write(generation_change(group, assignments))
    step.when_committed(AssignmentWriteOutcome(group.group_id, group.generation, assignments))


def mark_synced(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Note that a member of the generation sent its SyncGroup. When all members have, the sync timer is cancelled."""
    if member_id in group.pending_syncs:
        del group.pending_syncs[member_id]
        if not group.pending_syncs:
            step.cancel(ClassicTimer.SYNC, group)
