"""Sessions: a member stays in the group as long as each of its requests comes within its session timeout."""

from __future__ import annotations

from coordinator.classic.group import ClassicGroup
from coordinator.classic.member import Member
from coordinator.group.step import GroupStep, TimerKind


def expect_heartbeat(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """A request of the member came: its session begins anew."""
    step.schedule(TimerKind.SESSION, group, member.session_timeout_ms, member.member_id)


def expect_new_member(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """A member that has no id yet cannot send heartbeats: its parked join has a session of its own."""
    step.schedule(TimerKind.SESSION, group, step.config.new_member_join_timeout_ms, member.member_id)
