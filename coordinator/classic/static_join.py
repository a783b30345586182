"""Static members (KIP-345): one that restarts takes its old place under a new id, often without any rebalance."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.classic.assignment import share_refusal
from coordinator.classic.group import Group
from coordinator.classic.group_state import COMPLETING, PREPARING, STABLE
from coordinator.classic.member import Member
from coordinator.classic.rebalance import (
    complete_if_all_joined,
    join_refusal,
    joined,
    prepare_rebalance,
    rebalance_or_go_on,
    refuse_join,
)
from coordinator.classic.sessions import expect_heartbeat
from coordinator.group.events import Join
from coordinator.group.records import generation_change
from coordinator.group.step import Turn, write_refusal
from coordinator.runtime.effects import Waiter
from coordinator.runtime.timers import TimerKind
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequestProtocol

SKIP_ASSIGNMENT_VERSION = 9
"""From this version of JoinGroup on, a leader that restarted can be told that there is nothing to plan."""


class MemberReplaced(NamedTuple):
    """The record with the new id of a static member is committed: only then may it act under that id."""

    group_id: str
    waiter: Waiter
    former_id: str
    member_id: str
    former_leader_id: str
    former: Former

    def committed(self, turn: Turn) -> None:
        found = self._waiting(turn)
        if found is None:
            return
        group, member = found
        waiter = group.take_join(member)
        assert waiter is self.waiter
        is_leader = group.leader_id == member.member_id
        if waiter.version >= SKIP_ASSIGNMENT_VERSION:
            response = joined(group, member.member_id, with_members=is_leader)
            response.skip_assignment = is_leader
        else:
            # Under the old leader's id nobody is the leader, so that the restarted one does not plan.
            response = joined(group, member.member_id, with_members=False)
            response.leader = self.former_leader_id
        turn.reply(waiter, response)

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        """The old id is in force again."""
        found = self._waiting(turn)
        if found is None:
            return
        group, member = found
        group.take_join(member)
        group.change_protocols(member, self.former.protocols)
        member.rebalance_timeout_ms = self.former.rebalance_timeout_ms
        member.session_timeout_ms = self.former.session_timeout_ms
        turn.cancel(TimerKind.SESSION, group, member.member_id)
        expect_heartbeat(turn, group, group.replace_static(member.member_id, self.former_id))
        turn.reply(self.waiter, join_refusal(self.waiter, write_refusal(error), ""))

    def _waiting(self, turn: Turn) -> tuple[Group, Member] | None:
        """The member, if its join still waits for this record."""
        group = turn.groups.get(self.group_id)
        member = None if group is None else group.members.get(self.member_id)
        if group is None or member is None or member.joining is not self.waiter:
            return None
        return group, member


class Former(NamedTuple):
    """What a static member had said before it restarted."""

    protocols: list[JoinGroupRequestProtocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def static_member_returns(turn: Turn, group: Group, event: Join, member_id: str) -> None:
    """Fence whoever acts under the old id, and rebalance only if the group's protocol or plan would change."""
    request = event.request
    former_leader_id = group.leader_id or ""
    former_id = group.static_members[request.group_instance_id or ""]
    member = fence(turn, group, former_id, member_id)
    former = Former(member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.park_join(member, event.waiter)
    if group.state is STABLE:
        if group.select_protocol() != group.protocol_name:
            rebalance_or_go_on(turn, group, f"static member {member_id!r} changes the protocol")
            return
        assignments = {other.member_id: other.assignment for other in group.members.values()}
        turn.write(generation_change(group, assignments))
        turn.when_committed(
            MemberReplaced(group.group_id, event.waiter, former_id, member_id, former_leader_id, former)
        )
    elif group.state is COMPLETING:
        # The leader may be planning for the old id at this moment.
        prepare_rebalance(turn, group, f"static member {member_id!r} restarted")
    else:
        assert group.state is PREPARING, "an empty group has no members"
        complete_if_all_joined(turn, group)


def fence(turn: Turn, group: Group, former_id: str, member_id: str) -> Member:
    """From now on the member is the one with the new id; what the old one waits for is refused."""
    member = group.members[former_id]
    refuse_join(turn, group, member, ErrorCode.FENCED_INSTANCE_ID, former_id)
    share_refusal(turn, group, ErrorCode.FENCED_INSTANCE_ID, member)
    group.replace_static(former_id, member_id)
    turn.cancel(TimerKind.SESSION, group, former_id)
    expect_heartbeat(turn, group, member)
    return member
