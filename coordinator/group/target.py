"""The target assignment of a group: when the next one may be computed, and where. A thread computes the target of a
large group, from the group as it was when the computation began.

    the epoch of the group grows ──▶ ComputeTarget ──▶ thread ──▶ TargetComputed ──▶ the records of the target

The members follow the target before meanwhile, and the new one from their next heartbeats on. The target of a small
group is computed in the step of the request that needs it.

DIVERGES: Apache Kafka 4.3.1 computes every target in the request, 4.4.0 every one in a thread (KIP-1263); here the size
of the group decides (`GroupConfig.target_size_at_once`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from moldau.coordinator.group.group import GroupStep, TimerKey

TargetT_co = TypeVar("TargetT_co", covariant=True)
COMPUTATION_MAX_MS: Final = 60_000
"""The longest wait for a computed target (ms). It is then given up, and another computation may begin."""


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


class TargetInputs(Protocol[TargetT_co]):
    """What the target of a group is computed from. Nothing of it changes, so that a thread may read it."""

    @property
    def size(self) -> int:
        """A measure of the work of the assignor, which `GroupConfig.target_size_at_once` limits."""

    def compute(self) -> Mapping[str, TargetT_co]:
        """The target of each member, by member id."""


def is_too_early(assignment_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """Whether the next target has to wait. The interval counts from the last target, if its time is known (not 0)."""
    return assignment_ms != 0 and interval_ms != 0 and wall_ms < assignment_ms + interval_ms


def targets_at_once(
    step: GroupStep, key: TimerKey, epoch: int, inputs: TargetInputs[TargetT_co]
) -> Mapping[str, TargetT_co] | None:
    """The targets of an epoch. None for a large group: a thread is asked to compute them, unless the timer `key` says
    that one does already.

    The request that needs the targets may be refused later. Their epoch is then not that of the group.
    """
    if inputs.size <= step.config.target_size_at_once:
        return inputs.compute()
    if not step.timers.has(key):
        step.timers.schedule(key, step.now_ms + COMPUTATION_MAX_MS)
        step.command(ComputeTarget(key.group_id, epoch, inputs.compute))
    return None


def taken_over(event: TargetComputed, group: AssignedGroup) -> dict[str, Any] | None:
    """The targets of the members that the group still has; None if the group may not take them over.

    A target of an earlier epoch is followed by that of the group's epoch. One of the group's own epoch is the last one,
    so that it must be for the members that the group has: a static member is replaced without a new epoch.
    """
    is_newer = group.assignment_epoch < event.epoch <= group.epoch
    if not is_newer or (event.epoch == group.epoch and event.targets.keys() != group.members.keys()):
        return None
    return {member_id: target for member_id, target in event.targets.items() if member_id in group.members}
