"""The target assignment of a group: when the next one may be computed, and by which thread. For a large group an
executor thread computes it, from the state of the group at the beginning of the computation.

    the epoch of the group grows ──▶ ComputeTarget ──▶ thread ──▶ TargetComputed ──▶ the records of the target

Meanwhile the members follow the current target, and from their next heartbeats on the new one. The target of a small
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
    """The function that computes the targets. It reads only immutable values, so a thread may call it."""


class TargetComputed(NamedTuple):
    """The outcome of `ComputeTarget`."""

    group_id: str
    epoch: int
    """The epoch of the group for which the targets were computed."""
    targets: Mapping[str, object]
    """The target of each member of that epoch, by member id. Its type depends on the kind of group."""


class AssignedGroup(Protocol):
    """The attributes of groups with target assignments that this module needs."""

    @property
    def epoch(self) -> int: ...

    @property
    def assignment_epoch(self) -> int: ...

    @property
    def members(self) -> Mapping[str, object]: ...


class TargetInputs(Protocol[TargetT_co]):
    """The input of a target assignment's computation. It is immutable, so that a thread may read it."""

    @property
    def size(self) -> int:
        """A measure of the work of the assignor, which `GroupConfig.target_size_at_once` limits."""

    def compute(self) -> Mapping[str, TargetT_co]:
        """Compute the target of each member, by member id."""


def is_too_early(assignment_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """Whether the next target has to wait: the interval since the last target is not over. A time of 0 for the last
    target means that it is not known."""
    return assignment_ms != 0 and interval_ms != 0 and wall_ms < assignment_ms + interval_ms


def targets_at_once(
    step: GroupStep, key: TimerKey, epoch: int, inputs: TargetInputs[TargetT_co]
) -> Mapping[str, TargetT_co] | None:
    """Compute the targets of an epoch if the group is small. Otherwise command a thread to compute them, unless the
    timer `key` shows that one does already, and return None.

    The request that needs the targets may be refused later. Then the group never reaches their epoch.
    """
    if inputs.size <= step.config.target_size_at_once:
        return inputs.compute()
    if not step.timers.has(key):
        step.timers.schedule(key, step.now_ms + COMPUTATION_MAX_MS)
        step.command(ComputeTarget(key.group_id, epoch, inputs.compute))
    return None


def taken_over(event: TargetComputed, group: AssignedGroup) -> dict[str, Any] | None:
    """The targets of a computation for the members that the group still has; None if the group must not use them.

    Targets of an earlier epoch than the group's may be used although members have changed: those of the group's epoch
    follow. Targets of the group's own epoch are the last ones, so they must be for exactly its members: a static member
    may have been replaced without a new epoch.
    """
    is_newer = group.assignment_epoch < event.epoch <= group.epoch
    if not is_newer or (event.epoch == group.epoch and event.targets.keys() != group.members.keys()):
        return None
    return {member_id: target for member_id, target in event.targets.items() if member_id in group.members}
