"""Sessions of members: a member stays in the group as long as it sends requests within its session timeout."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.member import Member
from moldau.coordinator.group.step import GroupStep, TimerKind


def expect_heartbeat(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """Restart the session of a member that sent a request."""
    step.schedule(TimerKind.SESSION, group, member.session_timeout_ms, member.member_id)


def expect_new_member(step: GroupStep, group: ClassicGroup, member: Member) -> None:
    """Start the session of a parked join whose member has no id yet, and so cannot send heartbeats."""
    step.schedule(TimerKind.SESSION, group, step.config.new_member_join_timeout_ms, member.member_id)
