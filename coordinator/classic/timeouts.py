"""The timers of a classic group, and the decision that each of them triggers."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.heartbeat import session_timed_out
from moldau.coordinator.classic.rebalance import join_timed_out, sync_timed_out
from moldau.coordinator.group.events import TimerFired
from moldau.coordinator.group.step import GroupStep, TimerKind


def timer_fired(step: GroupStep, group: ClassicGroup, event: TimerFired) -> None:
    match event.key.kind:
        case TimerKind.SESSION:
            session_timed_out(step, group, event.key.member_id)
        case TimerKind.JOIN:
            join_timed_out(step, group)
        case TimerKind.SYNC:
            sync_timed_out(step, group)
