"""The target assignment of a large group: a thread computes it, from the group as it was.

    the epoch of the group grows ──▶ ComputeTarget ──▶ thread ──▶ TargetComputed ──▶ the records of the target

The members follow the target before meanwhile, and the new one from their next heartbeats on. The target of a small
group is computed in the step of the request that needs it.

DIVERGES: Apache Kafka 4.3.1 computes every target in the request, 4.4.0 every one in a thread (KIP-1263); here the size
of the group decides (`GroupConfig.target_size_at_once`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.group.group import GroupStep, TimerKey

COMPUTATION_MAX_MS: Final = 60_000
"""A target that is not there for so long (ms) is given up, and another computation may begin."""


class ComputeTarget(NamedTuple):
    """The command to compute a target off the event loop. The shell reports `TargetComputed`."""

    group_id: str
    epoch: int
    compute: Callable[[], Mapping[str, object]]
    """It reads nothing that changes."""


class TargetComputed(NamedTuple):
    """The outcome of `ComputeTarget`."""

    group_id: str
    epoch: int
    """The epoch of the group for which it was computed."""
    targets: Mapping[str, object]
    """What each member of that epoch gets, by member id, in the form of the kind of group."""


class AssignedGroup(Protocol):
    """What groups with target assignments have."""

    @property
    def epoch(self) -> int: ...

    @property
    def assignment_epoch(self) -> int: ...

    @property
    def members(self) -> Mapping[str, object]: ...


def compute_later(step: GroupStep, key: TimerKey, epoch: int, compute: Callable[[], Mapping[str, object]]) -> None:
    """Ask for the target of an epoch, unless one of the group is being computed; the timer `key` runs meanwhile.

    A request that is refused later may have asked for it: the epoch of the target is then not that of the group.
    """
    if not step.timers.has(key):
        step.timers.schedule(key, step.now_ms + COMPUTATION_MAX_MS)
        step.command(ComputeTarget(key.group_id, epoch, compute))


def is_of_use(event: TargetComputed, group: AssignedGroup) -> bool:
    """Whether the group may take over a target.

    One of an earlier epoch is followed by that of the group's epoch. One of the group's own epoch is the last one, so
    that it must be for the members that the group has: a static member is replaced without a new epoch.
    """
    is_newer = group.assignment_epoch < event.epoch <= group.epoch
    return is_newer and (event.epoch < group.epoch or event.targets.keys() == group.members.keys())
