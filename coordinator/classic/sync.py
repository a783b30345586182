"""SyncGroup: the leader brings the plan of a generation, everybody takes a share of it."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.classic.assignment import share, share_all, share_refusal, sync_refusal
from coordinator.classic.group import Group
from coordinator.classic.group_state import COMPLETING, PREPARING, STABLE
from coordinator.classic.member import NO_ASSIGNMENT
from coordinator.classic.rebalance import rebalance_or_go_on
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.events import Sync
from coordinator.group.records import generation_change
from coordinator.group.step import Turn, write_refusal
from coordinator.runtime.timers import TimerKind
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest

NAMED_PROTOCOL_VERSION = 5
"""From this version of SyncGroup on, a member says which protocol it takes the generation to run."""


class PlanStored(NamedTuple):
    """The leader's assignment is committed: CompletingRebalance → Stable, unless another rebalance came between."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]

    def committed(self, turn: Turn) -> None:
        group = self._waiting(turn)
        if group is None:
            return
        for member in group.members.values():
            member.assignment = self.assignments.get(member.member_id, NO_ASSIGNMENT)
        turn.move(group, STABLE)
        turn.note(group, f"generation {group.generation} is stable")
        share_all(turn, group)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        group = self._waiting(turn)
        if group is not None:
            share_refusal(turn, group, write_refusal(error))
            rebalance_or_go_on(turn, group, f"the assignment was not stored: {error.name}")

    def _waiting(self, turn: Turn) -> Group | None:
        group = turn.groups.get(self.group_id)
        if group is None or group.state is not COMPLETING or group.generation != self.generation:
            return None
        return group


def sync(turn: Turn, event: Sync) -> None:
    request = event.request
    group = turn.groups.get(request.group_id)
    error = refusal_of(group, request, event.waiter.version)
    if error is ErrorCode.NONE and group is not None and group.state is PREPARING:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not ErrorCode.NONE or group is None:
        turn.reply(event.waiter, sync_refusal(error))
        return
    forget_pending(turn, group, request.member_id)
    member = group.members[request.member_id]
    if group.state is STABLE:
        expect_heartbeat(turn, group, member)
        turn.reply(event.waiter, share(group, member))
        return
    # DIVERGES: Apache forgets the earlier of two parked syncs; here it is told to try again.
    share_refusal(turn, group, ErrorCode.REBALANCE_IN_PROGRESS, member)
    member.syncing = event.waiter
    if member.member_id == group.leader_id:
        store_plan(turn, group, request)


def refusal_of(group: Group | None, request: SyncGroupRequest, version: int) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if version >= NAMED_PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = group.refusal_of(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if differs(request.protocol_type, group.protocol_type) or differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def store_plan(turn: Turn, group: Group, request: SyncGroupRequest) -> None:
    """Every member gets a share, an empty one where the leader forgot it; strangers get none."""
    planned = {part.member_id: part.assignment for part in request.assignments}
    assignments = {member_id: planned.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
    turn.write(generation_change(group, assignments))
    turn.when_committed(PlanStored(group.group_id, group.generation, assignments))


def forget_pending(turn: Turn, group: Group, member_id: str) -> None:
    """The member asked for its share; with the last of them the wait is over."""
    if member_id in group.pending_syncs:
        del group.pending_syncs[member_id]
        if not group.pending_syncs:
            turn.cancel(TimerKind.SYNC, group)
