"""The assignor `sticky` of tasks, the only one of Apache Kafka 4.3.1.

| step | active tasks | standby tasks, for each replica |
|---|---|---|
| 1 | to the member that had the task active | to the member that had the task active |
| 2 | to a member that had a standby of the task | to a member that had a standby of the task |
| 3 | to the process with the least load, there to the member with the fewest tasks | the same |

Steps 1 and 2 stop at the quota of a member, the number of tasks divided by the number of members. No process gets the
same task twice; if there are too few processes, standby tasks are left out. The load of a process is the number of
its tasks for each of its members.

DIVERGES: Apache Kafka resolves equal loads by the order of hash tables and heaps; here the smaller id wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.streams.tasks import TaskId, Tasks, TaskSet, task_ids_of

NAME: Final = "sticky"
"""The name of the assignor, in settings and descriptions."""

MemberId: TypeAlias = str


class MemberSpec(NamedTuple):
    """The data of a member that the assignor reads: its process, and the tasks of its last target."""

    process_id: str
    active: TaskSet
    standby: TaskSet


class SubtopologySpec(NamedTuple):
    tasks_count: int
    is_stateful: bool
    """Whether the tasks have a state. Only such tasks get standbys."""


class Process:
    """A process of the application, with the tasks that its members are assigned during the computation."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.tasks: set[TaskId] = set()
        self.tasks_counts: dict[MemberId, int] = {}
        self.active: dict[MemberId, list[TaskId]] = {}
        self.standby: dict[MemberId, list[TaskId]] = {}
        self._by_load: list[tuple[int, MemberId]] | None = None

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.tasks_counts)

    def give(self, member_id: MemberId, task: TaskId, *, is_active: bool) -> int:
        """Assign a task to a member of this process. Returns the member's number of tasks afterwards."""
        assert task not in self.tasks, "a process has a task once"
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        self.tasks_counts[member_id] += 1
        self._by_load = None
        return self.tasks_counts[member_id]

    def give_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        heap = self._by_load
        if heap is None:
            heap = [(count, member_id) for member_id, count in self.tasks_counts.items()]
            heapify(heap)
        _, member_id = heappop(heap)
        count = self.give(member_id, task, is_active=is_active)
        heappush(heap, (count, member_id))
        self._by_load = heap
        return count


class MemberQuota:
    """The number of tasks up to which each member keeps its former tasks. It is the number of tasks that are left,
    divided by the number of members below the quota."""

    def __init__(self, tasks_count: int, members_count: int) -> None:
        self._tasks_count = tasks_count
        self._members_count = members_count
        self.tasks_per_member = 0
        self._divide()

    def note_tasks(self, tasks_count: int) -> None:
        """Note that a member now has this number of tasks. If the member has reached the quota, the quota is computed
        again for the other members."""
        if tasks_count == self.tasks_per_member:
            self._members_count -= 1
            self._tasks_count -= tasks_count
            self._divide()

    def _divide(self) -> None:
        members = self._members_count
        self.tasks_per_member = -(-self._tasks_count // members) if members > 0 else 0


class _Assignment:
    """An assignment while it is computed."""

    def __init__(
        self,
        members: Mapping[MemberId, MemberSpec],
        subtopologies: Mapping[str, SubtopologySpec],
        standby_replicas: int,
    ) -> None:
        self.standby_replicas = standby_replicas
        active_count = sum(each.tasks_count for each in subtopologies.values())
        stateful_count = sum(each.tasks_count for each in subtopologies.values() if each.is_stateful)
        self.active_quota = MemberQuota(active_count, len(members))
        self.total_quota = MemberQuota(active_count + stateful_count * standby_replicas, len(members))
        self.processes: dict[str, Process] = {}
        self.process_of: dict[MemberId, Process] = {}
        self.former_active: dict[TaskId, MemberId] = {}
        self.former_standby: dict[TaskId, list[MemberId]] = {}
        for member_id, spec in sorted(members.items()):
            process = self.processes.setdefault(spec.process_id, Process(spec.process_id))
            process.tasks_counts[member_id] = 0
            self.process_of[member_id] = process
            self.former_active.update(dict.fromkeys(task_ids_of(spec.active), member_id))
            for task in task_ids_of(spec.standby):
                self.former_standby.setdefault(task, []).append(member_id)

    def assign_active(self, tasks: list[TaskId]) -> None:
        left = sorted(tasks, key=_partition_first)
        left = [task for task in left if not self._keep_active(task, self.former_active.get(task))]
        left = [task for task in left if not self._keep_active(task, self._least_loaded(task, is_standby=False))]
        heap = self._processes_by_load()
        for task in sorted(left):
            _, process_id = heappop(heap)
            process = self.processes[process_id]
            self._note_active(process.give_to_least_loaded(task, is_active=True))
            heappush(heap, (process.load, process_id))

    def _keep_active(self, task: TaskId, member_id: MemberId | None) -> bool:
        if member_id is None:
            return False
        process = self.process_of[member_id]
        if process.tasks_counts[member_id] >= self.active_quota.tasks_per_member:
            return False
        self._note_active(process.give(member_id, task, is_active=True))
        return True

    def _note_active(self, tasks_count: int) -> None:
        self.active_quota.note_tasks(tasks_count)
        self.total_quota.note_tasks(tasks_count)

    def assign_standby(self, tasks: list[TaskId]) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=_partition_first, reverse=True):
            for index in range(self.standby_replicas):
                if not (
                    self._keep_standby(task, self.former_active.get(task))
                    or self._keep_standby(task, self._least_loaded(task, is_standby=True))
                ):
                    left.append((task, self.standby_replicas - index))
                    break
        heap = self._processes_by_load()
        for task, replicas in sorted(left, reverse=True):
            for _ in range(replicas):
                if not self._place_standby(heap, task):
                    break

    def _keep_standby(self, task: TaskId, member_id: MemberId | None) -> bool:
        if member_id is None:
            return False
        process = self.process_of[member_id]
        if task in process.tasks or process.tasks_counts[member_id] >= self.total_quota.tasks_per_member:
            return False
        self.total_quota.note_tasks(process.give(member_id, task, is_active=False))
        return True

    def _place_standby(self, heap: list[tuple[float, str]], task: TaskId) -> bool:
        """Assign a standby of the task to the process with the least load among those that do not have the task.
        Returns False if all processes have it."""
        passed = []
        is_placed = False
        while heap and not is_placed:
            entry = heappop(heap)
            process = self.processes[entry[1]]
            if task not in process.tasks:
                self.total_quota.note_tasks(process.give_to_least_loaded(task, is_active=False))
                entry = (process.load, process.process_id)
                is_placed = True
            passed.append(entry)
        for entry in passed:
            heappush(heap, entry)
        return is_placed

    def _processes_by_load(self) -> list[tuple[float, str]]:
        heap = [(process.load, process_id) for process_id, process in self.processes.items()]
        heapify(heap)
        return heap

    def _least_loaded(self, task: TaskId, *, is_standby: bool) -> MemberId | None:
        """Choose one of the members that had a standby of the task, as Apache Kafka does: the first one, or a later one
        if it and its process have less load. Returns None if no member had a standby.

        `is_standby` means that a standby is to be assigned. A process that has the task must not get a standby of it.
        The process of the first member is checked only at the end: if it has the task, the result is None although
        another member was chosen.
        """
        members = self.former_standby.get(task)
        if not members:
            return None
        chosen = first = members[0]
        process = self.process_of[first]
        process_load, member_load = process.load, process.tasks_counts[first]
        for member_id in members[1:]:
            other = self.process_of[member_id]
            is_lighter = other.load < process_load and other.tasks_counts[member_id] < member_load
            if is_lighter and not (is_standby and task in other.tasks):
                process_load, member_load = other.load, other.tasks_counts[member_id]
                chosen = member_id
        return None if is_standby and task in process.tasks else chosen

    def result(self) -> dict[MemberId, Tasks]:
        return {
            member_id: Tasks(
                _by_subtopology(process.active.get(member_id, ())),
                _by_subtopology(process.standby.get(member_id, ())),
                {},
            )
            for member_id, process in self.process_of.items()
        }


def assign_tasks(
    members: Mapping[MemberId, MemberSpec],
    subtopologies: Mapping[str, SubtopologySpec],
    standby_replicas: int,
) -> dict[MemberId, Tasks]:
    """Compute the tasks of each member, by member id. `members` is not empty."""
    assignment = _Assignment(members, subtopologies, standby_replicas)
    assignment.assign_active(_tasks_of(subtopologies.items()))
    if standby_replicas > 0:
        assignment.assign_standby(_tasks_of(item for item in subtopologies.items() if item[1].is_stateful))
    return assignment.result()


def _tasks_of(subtopologies: Iterable[tuple[str, SubtopologySpec]]) -> list[TaskId]:
    return [(subtopology_id, index) for subtopology_id, spec in subtopologies for index in range(spec.tasks_count)]


def _partition_first(task: TaskId) -> tuple[int, str]:
    return task[1], task[0]


def _by_subtopology(tasks: Iterable[TaskId]) -> TaskSet:
    partitions: dict[str, set[int]] = {}
    for subtopology_id, partition in tasks:
        partitions.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(each) for subtopology_id, each in partitions.items()}
