"""Tasks of a streams group: the units that are assigned to members, one for each partition of a subtopology's input.

An active task processes records. A standby task keeps a copy of a task's state on another process. Warm-up tasks are in
the protocol, but Apache Kafka 4.3.1 assigns none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

TaskId: TypeAlias = tuple[str, int]
"""A task: the id of its subtopology, and its partition."""
TaskSet: TypeAlias = Mapping[str, frozenset[int]]
"""The partitions of tasks by the id of their subtopology. No subtopology has an empty set."""
EpochsOfTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""For each task, by subtopology id and partition, the epoch in which the member got the task."""


class TaskIdsFields(Protocol):
    """The fields of the tasks of one subtopology, in requests, responses and records."""

    @property
    def subtopology_id(self) -> str: ...
    @property
    def partitions(self) -> Collection[int]: ...


class Tasks(NamedTuple):
    """Tasks by their role: the target of a member, or the tasks that a member reports to own."""

    active: TaskSet
    standby: TaskSet
    warmup: TaskSet


class AssignedTasks(NamedTuple):
    """Tasks that a member has, or has to revoke, by their role."""

    active: EpochsOfTasks
    standby: TaskSet
    warmup: TaskSet

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


NO_TASKS: Final = Tasks({}, {}, {})
NONE_ASSIGNED: Final = AssignedTasks({}, {}, {})


def task_set(listed: Iterable[TaskIdsFields]) -> TaskSet:
    return {each.subtopology_id: frozenset(each.partitions) for each in listed}


def task_ids_of(tasks: Mapping[str, Iterable[int]]) -> list[TaskId]:
    return [(subtopology_id, partition) for subtopology_id, each in tasks.items() for partition in each]


def owns_any(owned: Tasks, tasks: AssignedTasks) -> bool:
    """Whether one of `tasks` is among the tasks `owned` of a member, in the same role."""
    return _meet(owned.active, tasks.active) or _meet(owned.standby, tasks.standby) or _meet(owned.warmup, tasks.warmup)


def _meet(owned: TaskSet, tasks: Mapping[str, Collection[int]]) -> bool:
    return any(not partitions.isdisjoint(tasks.get(key, ())) for key, partitions in owned.items())


def merged_tasks(tasks: AssignedTasks, added: AssignedTasks) -> AssignedTasks:
    active = {key: {**epochs} for key, epochs in tasks.active.items()}
    for key, epochs in added.active.items():
        active.setdefault(key, {}).update(epochs)
    return AssignedTasks(active, _union(tasks.standby, added.standby), _union(tasks.warmup, added.warmup))


def _union(tasks: TaskSet, added: TaskSet) -> TaskSet:
    return {key: tasks.get(key, frozenset()) | added.get(key, frozenset()) for key in {**tasks, **added}}
