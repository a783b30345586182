"""Sessions: a member is there as long as it is heard of within its session timeout."""

from __future__ import annotations

from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.group.step import Turn
from coordinator.runtime.timers import TimerKind


def expect_heartbeat(turn: Turn, group: Group, member: Member) -> None:
    """The member was heard of: it has its whole session timeout again."""
    turn.schedule(TimerKind.SESSION, group, member.session_timeout_ms, member.member_id)


def expect_new_member(turn: Turn, group: Group, member: Member) -> None:
    """A member that does not know its id cannot send heartbeats, but it may not wait for ever either."""
    turn.schedule(TimerKind.SESSION, group, turn.config.new_member_join_timeout_ms, member.member_id)
