"""The assignor of tasks: every task once, balanced, sticky, and no process with a task and its copy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.streams.task_assignor import MemberSpec, SubtopologySpec, assign_tasks
from moldau.coordinator.streams.tasks import Tasks, task_ids_of

STATEFUL = {"0": SubtopologySpec(4, is_stateful=True)}


def member(process_id: str, had: Tasks | None = None) -> MemberSpec:
    return MemberSpec(process_id, had.active if had else {}, had.standby if had else {})


def processes(*names: str) -> dict[str, MemberSpec]:
    """One member for each process, with the process's name in lower case."""
    return {name.lower(): member(name) for name in names}


def again(members: dict[str, MemberSpec], assignment: dict[str, Tasks]) -> dict[str, MemberSpec]:
    return {key: member(spec.process_id, assignment.get(key)) for key, spec in members.items()}


def test_tasks_are_dealt_to_processes_by_load() -> None:
    members = {"a1": member("A"), "a2": member("A"), "b1": member("B")}
    counts = {
        key: len(task_ids_of(tasks.active))
        for key, tasks in assign_tasks(members, {"0": SubtopologySpec(6, False)}, 0).items()
    }
    assert counts == {"a1": 2, "a2": 2, "b1": 2}


def test_each_member_keeps_its_tasks() -> None:
    members = processes("A", "B")
    first = assign_tasks(members, STATEFUL, 0)
    assert assign_tasks(again(members, first), STATEFUL, 0) == first


def test_a_new_member_takes_only_what_exceeds_the_quota() -> None:
    members = processes("A", "B")
    first = assign_tasks(members, {"0": SubtopologySpec(6, True)}, 0)
    grown = again(members, first) | processes("C")
    second = assign_tasks(grown, {"0": SubtopologySpec(6, True)}, 0)
    assert {key: len(task_ids_of(tasks.active)) for key, tasks in second.items()} == {"a": 2, "b": 2, "c": 2}
    assert second["a"].active["0"] < first["a"].active["0"]
    assert second["b"].active["0"] < first["b"].active["0"]


def test_a_task_of_a_lost_member_goes_to_its_standby() -> None:
    members = processes("A", "B", "C")
    first = assign_tasks(members, {"0": SubtopologySpec(3, True)}, 1)
    lost = next(iter(task_ids_of(first["a"].active)))
    (copy,) = (key for key, tasks in first.items() if lost in task_ids_of(tasks.standby))
    left = {key: spec for key, spec in again(members, first).items() if key != "a"}
    second = assign_tasks(left, {"0": SubtopologySpec(3, True)}, 1)
    assert lost in task_ids_of(second[copy].active)


def test_a_standby_is_on_another_process() -> None:
    members = {"a1": member("A"), "a2": member("A"), "b1": member("B")}
    found = assign_tasks(members, STATEFUL, 1)
    on_a = set(task_ids_of(found["a1"].active)) | set(task_ids_of(found["a2"].active))
    copies_on_a = set(task_ids_of(found["a1"].standby)) | set(task_ids_of(found["a2"].standby))
    assert not on_a & copies_on_a
    assert {*task_ids_of(found["b1"].standby)} == on_a


def test_one_process_gets_no_standbys() -> None:
    found = assign_tasks(processes("A"), STATEFUL, 1)
    assert len(task_ids_of(found["a"].active)) == 4
    assert found["a"].standby == {}


def test_tasks_without_state_have_no_standbys() -> None:
    found = assign_tasks(processes("A", "B"), {"0": SubtopologySpec(4, False)}, 1)
    assert all(tasks.standby == {} for tasks in found.values())


def test_warmups_are_never_assigned() -> None:
    assert all(tasks.warmup == {} for tasks in assign_tasks(processes("A", "B"), STATEFUL, 1).values())


topologies = st.dictionaries(
    st.sampled_from(["0", "1", "2"]),
    st.builds(SubtopologySpec, st.integers(1, 7), st.booleans()),
    min_size=1,
)
groups = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("PQRS"), min_size=1)


@settings(max_examples=300, deadline=None)
@given(topologies, groups, groups, st.integers(0, 2))
def test_any_group_after_any_change(
    subtopologies: dict[str, SubtopologySpec], before: dict[str, str], after: dict[str, str], replicas: int
) -> None:
    first = assign_tasks({key: member(process) for key, process in before.items()}, subtopologies, replicas)
    members = {key: member(process, first.get(key)) for key, process in after.items()}
    found = assign_tasks(members, subtopologies, replicas)
    active = [task for tasks in found.values() for task in task_ids_of(tasks.active)]
    assert sorted(active) == [
        (key, index) for key in sorted(subtopologies) for index in range(subtopologies[key].tasks_count)
    ]
    for process in set(after.values()):
        mine = [tasks for key, tasks in found.items() if after[key] == process]
        held = [task for tasks in mine for task in (*task_ids_of(tasks.active), *task_ids_of(tasks.standby))]
        assert len(held) == len(set(held))
    copies = [task for tasks in found.values() for task in task_ids_of(tasks.standby)]
    wanted = min(replicas, len(set(after.values())) - 1)
    stateful = [task for task in active if subtopologies[task[0]].is_stateful]
    assert sorted(copies) == sorted(stateful * wanted)
