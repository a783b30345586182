"""One step of the shard of groups: the groups by id, and their timers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import Change
from moldau.coordinator.runtime.step import Step
from moldau.coordinator.runtime.timers import Timers


class TimerKind(Enum):
    SESSION = auto()
    """The session timeout of a member."""
    JOIN = auto()
    """The join phase of a rebalance, or the initial delay of a group's first."""
    SYNC = auto()
    """The time that the members of a new generation have for their SyncGroup requests."""
    EXPIRY = auto()
    """The next search for expired offsets."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class Rebalances:
    """Counts of rebalances for the metrics, which outlive the steps."""

    completed: int = 0


@dataclass(slots=True)
class GroupStep(Step[Change]):
    config: GroupConfig
    groups: dict[str, Group]
    timers: Timers[TimerKey]
    rebalances: Rebalances

    def note(self, group: Group, text: str) -> None:
        """Add a note about a group for the operator's log.

        The caller quotes names and reasons, which are text from clients.
        """
        self.notes.append(f"group {group.group_id!r}: {text}")

    def schedule(self, kind: TimerKind, group: Group, delay_ms: int, member_id: str = "") -> None:
        self.timers.schedule(TimerKey(kind, group.group_id, member_id), self.now_ms + delay_ms)

    def cancel(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        self.timers.cancel(TimerKey(kind, group.group_id, member_id))
