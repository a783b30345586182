"""A member of a streams group, and its reconciliation with the target assignment.

| state | the member | leaves the state |
|---|---|---|
| STABLE | has its target | when the group has a target of another epoch |
| UNREVOKED_TASKS | has to revoke tasks; its epoch does not move | when it reports owned tasks without them |
| UNRELEASED_TASKS | waits for tasks that other members or its own process still have | when the tasks become free |
| UNKNOWN | is in a state of a later version of Apache Kafka | when it reports that it owns nothing; else it is fenced |

A member gets an active task when no process has the task active. A process never has a task in two roles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from moldau.coordinator.streams.tasks import (
    NO_TASKS,
    NONE_ASSIGNED,
    AssignedTasks,
    TaskId,
    Tasks,
    TaskSet,
    merged_tasks,
    owns_any,
    task_ids_of,
)

PartitionsT = TypeVar("PartitionsT")


class MemberState(IntEnum):
    """The state of a member's reconciliation with the target assignment. The numbers are those in the member's
    StreamsGroupCurrentMemberAssignment record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class UserEndpoint(NamedTuple):
    """The address at which a member of the application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch of the response before the last one. A member that did not receive the last response sends this
    epoch."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = NONE_ASSIGNED
    to_revoke: AssignedTasks = NONE_ASSIGNED

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def owns_only_assigned(self, owned: Tasks | None) -> bool:
        """Whether all tasks that the member reports to own were given to it; False if it reports nothing."""
        return owned is not None and (
            _are_within(owned.active, self.assigned.active)
            and _are_within(owned.standby, self.assigned.standby)
            and _are_within(owned.warmup, self.assigned.warmup)
        )


def _are_within(owned: TaskSet, given: Mapping[str, Collection[int]]) -> bool:
    return all(key in given and all(each in given[key] for each in partitions) for key, partitions in owned.items())


class TaskOwners:
    """The processes that have each task, by role. A task counts if a member has it or still has to revoke it."""

    def __init__(self) -> None:
        self.active: dict[TaskId, str] = {}
        self.standby: dict[TaskId, set[str]] = {}
        self.warmup: dict[TaskId, set[str]] = {}

    def remove(self, member: Member) -> None:
        for tasks in (member.assigned, member.to_revoke):
            for task in task_ids_of(tasks.active):
                if self.active.get(task) == member.process_id:
                    del self.active[task]
            for owners, given in ((self.standby, tasks.standby), (self.warmup, tasks.warmup)):
                for task in task_ids_of(given):
                    processes = owners.get(task, set())
                    processes.discard(member.process_id)
                    if not processes:
                        owners.pop(task, None)

    def add(self, member: Member) -> None:
        for tasks in (member.assigned, member.to_revoke):
            self.active.update(dict.fromkeys(task_ids_of(tasks.active), member.process_id))
            for owners, given in ((self.standby, tasks.standby), (self.warmup, tasks.warmup)):
                for task in task_ids_of(given):
                    owners.setdefault(task, set()).add(member.process_id)

    def is_active_taken(self, task: TaskId, process_id: str) -> bool:
        """Whether the task cannot become active on the process yet, because some process has it active, or this process
        has it in another role."""
        return task in self.active or self._is_copied_on(task, process_id)

    def is_copy_taken(self, task: TaskId, process_id: str) -> bool:
        """Whether the process cannot get a standby or warm-up of the task yet, because it has the task in some role."""
        return self.active.get(task) == process_id or self._is_copied_on(task, process_id)

    def _is_copied_on(self, task: TaskId, process_id: str) -> bool:
        return process_id in self.standby.get(task, ()) or process_id in self.warmup.get(task, ())


def reconcile_member(
    member: Member, target_epoch: int, target: Tasks, owners: TaskOwners, owned: Tasks | None
) -> Member | None:
    """The member after its next step towards the target of `target_epoch`; the same object if nothing changes. None if
    the member must be fenced.

    `owned` are the tasks that the member reports; None if it reports none.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            epoch = member.epoch
        case MemberState.UNREVOKED_TASKS:
            if owned is None or owns_any(owned, member.to_revoke):
                return member
            epoch = member.epoch + 1
        case MemberState.UNRELEASED_TASKS:
            epoch = member.epoch
        case MemberState.UNKNOWN:
            if owned is None or owned != NO_TASKS:
                return None
            epoch = target_epoch
    return next_assignment(member, epoch, target_epoch, target, owners, owned)


class TaskDifference(NamedTuple):
    """The differences between a member's tasks and its target, which its next step removes."""

    kept: AssignedTasks
    to_revoke: AssignedTasks
    given: AssignedTasks
    """The new tasks that no process has, or that the member's process may get."""
    has_taken: bool
    """Whether the target has new tasks that are not free yet."""


def next_assignment(
    member: Member, epoch: int, target_epoch: int, target: Tasks, owners: TaskOwners, owned: Tasks | None
) -> Member:
    """The member after its next step. It keeps the tasks that are in the target, and revokes the others. Once none is
    left to revoke, it gets the tasks of the target that are free.

    `epoch` is the member's epoch while it has tasks to revoke; afterwards it has `target_epoch`.
    """
    difference = difference_of(member, target_epoch, target, owners)
    must_revoke = not difference.to_revoke.is_empty and (owned is None or owns_any(owned, difference.to_revoke))
    if must_revoke:
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=difference.kept,
            to_revoke=difference.to_revoke,
        )
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if difference.has_taken else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=difference.kept if difference.given.is_empty else merged_tasks(difference.kept, difference.given),
        to_revoke=NONE_ASSIGNED,
    )


def difference_of(member: Member, target_epoch: int, target: Tasks, owners: TaskOwners) -> TaskDifference:
    kept_active: dict[str, dict[int, int]] = {}
    lost_active: dict[str, dict[int, int]] = {}
    for key, epochs in member.assigned.active.items():
        wanted = target.active.get(key, frozenset())
        _put(kept_active, key, {partition: at for partition, at in epochs.items() if partition in wanted})
        _put(lost_active, key, {partition: at for partition, at in epochs.items() if partition not in wanted})
    new_active: dict[str, dict[int, int]] = {}
    has_taken = False
    for key, wanted in target.active.items():
        new = wanted - member.assigned.active.get(key, {}).keys()
        free = {each: target_epoch for each in new if not owners.is_active_taken((key, each), member.process_id)}
        has_taken |= len(free) < len(new)
        _put(new_active, key, free)

    def is_taken(task: TaskId) -> bool:
        return owners.is_copy_taken(task, member.process_id)

    standby = _copies(member.assigned.standby, target.standby, is_taken)
    warmup = _copies(member.assigned.warmup, target.warmup, is_taken)
    return TaskDifference(
        AssignedTasks(kept_active, standby.kept, warmup.kept),
        AssignedTasks(lost_active, standby.lost, warmup.lost),
        AssignedTasks(new_active, standby.given, warmup.given),
        has_taken or standby.has_taken or warmup.has_taken,
    )


class _Copies(NamedTuple):
    kept: TaskSet
    lost: TaskSet
    given: TaskSet
    has_taken: bool


def _copies(current: TaskSet, target: TaskSet, is_taken: Callable[[TaskId], bool]) -> _Copies:
    kept: dict[str, frozenset[int]] = {}
    lost: dict[str, frozenset[int]] = {}
    given: dict[str, frozenset[int]] = {}
    has_taken = False
    for key in {**current, **target}:
        had, wanted = current.get(key, frozenset()), target.get(key, frozenset())
        free = frozenset(each for each in wanted - had if not is_taken((key, each)))
        has_taken |= len(free) < len(wanted - had)
        _put(kept, key, had & wanted)
        _put(lost, key, had - wanted)
        _put(given, key, free)
    return _Copies(kept, lost, given, has_taken)


def _put(tasks: dict[str, PartitionsT], key: str, partitions: PartitionsT) -> None:
    if partitions:
        tasks[key] = partitions
