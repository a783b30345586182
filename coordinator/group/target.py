"""Decides when the next target assignment of a group may be computed, and on which thread. The target of a large group
is computed by an executor thread, from the state of the group at the beginning of the computation.

    the epoch of the group grows ──▶ ComputeTarget ──▶ thread ──▶ TargetComputed ──▶ the records of the target

During the computation the members follow the last target, and from their next heartbeats on the new one. The target of
a small group is computed in the step of the request that needs it.

DIVERGES: Apache Kafka 4.3.1 computes every target in the request, 4.4.0 every one in a thread (KIP-1263); here the size
of the group decides (`GroupConfig.target_size_at_once`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from moldau.coordinator.group.group import GroupStep, TimerKey

TargetT_co = TypeVar("TargetT_co", covariant=True)
COMPUTATION_MAX_MS: Final = 60_000
"""The longest time (ms) for which the result of a computation is awaited. Afterwards another computation may begin."""


class ComputeTarget(NamedTuple):
    """The command to compute a target assignment on an executor thread. The broker reports the result with
    `TargetComputed`."""

    group_id: str
    epoch: int
    compute: Callable[[], Mapping[str, object]]
    """The function that computes the targets. It reads only immutable values, so a thread may call it."""


class TargetComputed(NamedTuple):
    """The result of a `ComputeTarget` command."""

    group_id: str
    epoch: int
    """The epoch of the group for which the targets were computed."""
    targets: Mapping[str, object]
    """The target of each member that the group had at that epoch, by member id. The type depends on the kind of
    group."""


class AssignedGroup(Protocol):
    """The attributes of groups with target assignments that this module needs."""

    @property
    def epoch(self) -> int: ...

    @property
    def assignment_epoch(self) -> int: ...

    @property
    def members(self) -> Mapping[str, object]: ...


class TargetInputs(Protocol[TargetT_co]):
    """The input of the computation of a target assignment. It is immutable, so that a thread may read it."""

    @property
    def size(self) -> int:
        """The work of the computation, as the number of partitions and subscriptions. Above
        `GroupConfig.target_size_at_once` an executor thread computes the target."""

    def compute(self) -> Mapping[str, TargetT_co]:
        """Compute the target of each member, by member id."""


def is_too_early(assignment_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """Whether the next target has to wait because the interval (ms) since the last target is not over. `assignment_ms`
    is the wall-clock time of the last target, or 0 if it is not known."""
    return assignment_ms != 0 and interval_ms != 0 and wall_ms < assignment_ms + interval_ms


def targets_if_small(
    step: GroupStep, key: TimerKey, epoch: int, inputs: TargetInputs[TargetT_co]
) -> Mapping[str, TargetT_co] | None:
    """Compute the targets of an epoch if the group is small. Otherwise return None, and command a thread to compute
    them, unless the timer `key` shows that a computation is running. The request that needs the targets may still be
    refused afterwards; then the group never reaches that epoch.
    """
    if inputs.size <= step.config.target_size_at_once:
        return inputs.compute()
    if not step.timers.has(key):
        step.timers.schedule(key, step.now_ms + COMPUTATION_MAX_MS)
        step.command(ComputeTarget(key.group_id, epoch, inputs.compute))
    return None


def usable_targets(event: TargetComputed, group: AssignedGroup) -> dict[str, Any] | None:
    """The computed targets of the members that the group still has; None if the group must not use them.

    Targets of an earlier epoch than the group's may be used although members have changed, because targets of the
    group's epoch will follow. No others follow targets of the group's own epoch, so these must be for exactly its
    members: a static member may have been replaced without a new epoch.
    """
    is_newer = group.assignment_epoch < event.epoch <= group.epoch
    if not is_newer or (event.epoch == group.epoch and event.targets.keys() != group.members.keys()):
        return None
    return {member_id: target for member_id, target in event.targets.items() if member_id in group.members}
