"""Static members (KIP-345): a member that restarts keeps its place under a new id, usually without a rebalance."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.coordinator.classic.group import ClassicGroup, classic_group
from moldau.coordinator.classic.group_state import COMPLETING, PREPARING, STABLE
from moldau.coordinator.classic.member import Member
from moldau.coordinator.classic.rebalance import (
    complete_if_all_joined,
    join_refusal,
    join_response,
    prepare_rebalance,
    rebalance,
    refuse_join,
)
from moldau.coordinator.classic.records import generation_change
from moldau.coordinator.classic.sessions import expect_heartbeat
from moldau.coordinator.classic.sync_answers import refuse_sync
from moldau.coordinator.group.events import Join
from moldau.coordinator.group.step import GroupStep, TimerKind
from moldau.coordinator.runtime.effects import Waiter
from moldau.coordinator.runtime.write_errors import write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol

SKIP_ASSIGNMENT_VERSION: Final = 9
"""From this version of JoinGroup on, the response can tell a restarted leader that the assignment still holds."""


class ReturnAction(Enum):
    JOIN = auto()
    """The member counts as joined in the current join phase."""
    REBALANCE = auto()
    """A rebalance begins: the leader may just be assigning partitions to the former id."""
    STORE = auto()
    """The new id is stored. A rebalance begins only if the group's protocol changes."""


JOIN, REBALANCE, STORE = ReturnAction

RETURN_ACTIONS: Final = {PREPARING: JOIN, COMPLETING: REBALANCE, STABLE: STORE}
"""What happens when a static member restarts, by the group's state. An empty group has no members."""


class MemberReplaced(NamedTuple):
    """The record with the new id of a static member: when it is committed, the member may act under that id."""

    group_id: str
    waiter: Waiter
    former_id: str
    member_id: str
    former_leader_id: str
    former: Former

    def committed(self, step: GroupStep) -> None:
        found = self._awaiting(step)
        if found is None:
            return
        group, member = found
        waiter = group.take_join(member)
        assert waiter is self.waiter
        is_leader = group.leader_id == member.member_id
        if waiter.version >= SKIP_ASSIGNMENT_VERSION:
            response = join_response(group, member.member_id, with_members=is_leader)
            response.skip_assignment = is_leader
        else:
            # The response names the former id as the leader, so that the member does not compute an assignment.
            response = join_response(group, member.member_id, with_members=False)
            response.leader = self.former_leader_id
        step.reply(waiter, response)

    def failed(self, step: GroupStep, error: ErrorCode) -> None:
        """Make the former id valid again, because the record was refused."""
        found = self._awaiting(step)
        if found is None:
            return
        group, member = found
        group.take_join(member)
        group.change_protocols(member, self.former.protocols)
        member.rebalance_timeout_ms = self.former.rebalance_timeout_ms
        member.session_timeout_ms = self.former.session_timeout_ms
        step.cancel(TimerKind.SESSION, group, member.member_id)
        expect_heartbeat(step, group, group.replace_static(member.member_id, self.former_id))
        step.reply(self.waiter, join_refusal(self.waiter, write_error(error), ""))

    def _awaiting(self, step: GroupStep) -> tuple[ClassicGroup, Member] | None:
        """The member, if its join still waits for this record; else None."""
        group = classic_group(step.groups, self.group_id)
        member = None if group is None else group.members.get(self.member_id)
        if group is None or member is None or member.joining is not self.waiter:
            return None
        return group, member


class Former(NamedTuple):
    """The protocols and timeouts of a static member before it restarted."""

    protocols: list[JoinGroupRequestProtocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def static_member_returns(step: GroupStep, group: ClassicGroup, event: Join, member_id: str) -> None:
    """Fence the former id, and park the join or store the new id."""
    request = event.request
    former_leader_id = group.leader_id or ""
    former_id = group.static_members[request.group_instance_id or ""]
    member = fence(step, group, former_id, member_id)
    former = Former(member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.park_join(member, event.waiter)
    match RETURN_ACTIONS[group.state]:
        case ReturnAction.JOIN:
            complete_if_all_joined(step, group)
        case ReturnAction.REBALANCE:
            prepare_rebalance(step, group, f"static member {member_id!r} restarted")
        case ReturnAction.STORE if group.select_protocol() != group.protocol_name:
            rebalance(step, group, f"static member {member_id!r} changes the protocol")
        case ReturnAction.STORE:
            assignments = {other.member_id: other.assignment for other in group.members.values()}
            step.write(generation_change(group, assignments))
            step.when_committed(
                MemberReplaced(group.group_id, event.waiter, former_id, member_id, former_leader_id, former)
            )


def fence(step: GroupStep, group: ClassicGroup, former_id: str, member_id: str) -> Member:
    """Give the member its new id, and answer parked requests of the former id with FENCED_INSTANCE_ID."""
    member = group.members[former_id]
    refuse_join(step, group, member, ErrorCode.FENCED_INSTANCE_ID, former_id)
    refuse_sync(step, member, ErrorCode.FENCED_INSTANCE_ID)
    group.replace_static(former_id, member_id)
    step.cancel(TimerKind.SESSION, group, former_id)
    expect_heartbeat(step, group, member)
    return member
