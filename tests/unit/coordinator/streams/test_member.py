"""A member on its way to its target: it revokes first, takes what is free, and waits for the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.streams.member import Member, MemberState, TaskOwners, reconcile_member
from moldau.coordinator.streams.tasks import NO_TASKS, NONE_ASSIGNED, AssignedTasks, Tasks, TaskSet, task_ids_of


def active(*partitions: int) -> Tasks:
    return Tasks({"0": frozenset(partitions)} if partitions else {}, {}, {})


def standby(*partitions: int) -> Tasks:
    return Tasks({}, {"0": frozenset(partitions)}, {})


def given_at(epoch: int, *partitions: int) -> AssignedTasks:
    return AssignedTasks({"0": dict.fromkeys(partitions, epoch)}, {}, {})


def owners(*members: Member) -> TaskOwners:
    found = TaskOwners()
    for member in members:
        found.add(member)
    return found


A = Member("a", 5, 4, process_id="A", assigned=given_at(5, 0, 1))


def step(member: Member, epoch: int, target: Tasks, taken: TaskOwners, owned: Tasks | None = None) -> Member:
    found = reconcile_member(member, epoch, target, taken, owned)
    assert found is not None
    return found


def test_a_member_at_its_target_stays_as_it_is() -> None:
    assert step(A, 5, active(7), owners(A)) is A


def test_a_member_takes_free_tasks_with_the_targets_epoch() -> None:
    found = step(A, 6, active(0, 1, 2), owners(A))
    assert (found.state, found.epoch, found.previous_epoch) == (MemberState.STABLE, 6, 5)
    assert found.assigned.active == {"0": {0: 5, 1: 5, 2: 6}}


def test_a_member_revokes_before_it_takes() -> None:
    found = step(A, 6, active(1, 2), owners(A))
    assert (found.state, found.epoch, found.previous_epoch) == (MemberState.UNREVOKED_TASKS, 5, 5)
    assert found.assigned == given_at(5, 1)
    assert found.to_revoke == given_at(5, 0)


def test_a_member_that_does_not_own_what_it_has_to_revoke_goes_on_at_once() -> None:
    found = step(A, 6, active(1, 2), owners(A), owned=active(1))
    assert (found.state, found.epoch) == (MemberState.STABLE, 6)
    assert found.assigned.active == {"0": {1: 5, 2: 6}}
    assert found.to_revoke == NONE_ASSIGNED


def test_revocation_is_over_when_the_report_has_none_of_the_tasks() -> None:
    revoking = step(A, 6, active(1, 2), owners(A))
    taken = owners(revoking)
    assert step(revoking, 6, active(1, 2), taken) is revoking
    assert step(revoking, 6, active(1, 2), taken, owned=active(0, 1)) is revoking
    found = step(revoking, 6, active(1, 2), taken, owned=active(1))
    assert (found.state, found.epoch, found.previous_epoch) == (MemberState.STABLE, 6, 5)


def test_the_epoch_moves_by_one_where_the_next_target_revokes_again() -> None:
    revoking = step(A, 6, active(1, 2), owners(A))
    found = step(revoking, 8, active(2), owners(revoking), owned=active(1))
    assert (found.state, found.epoch, found.previous_epoch) == (MemberState.UNREVOKED_TASKS, 6, 5)
    assert found.to_revoke == given_at(5, 1)


def test_a_member_waits_for_a_task_of_another_process() -> None:
    other = Member("b", 6, 5, process_id="B", assigned=given_at(4, 2))
    waiting = step(A, 6, active(0, 1, 2), owners(A, other))
    assert (waiting.state, waiting.epoch) == (MemberState.UNRELEASED_TASKS, 6)
    assert waiting.assigned == A.assigned
    found = step(waiting, 6, active(0, 1, 2), owners(waiting))
    assert (found.state, found.assigned.active) == (MemberState.STABLE, {"0": {0: 5, 1: 5, 2: 6}})


def test_a_task_to_revoke_is_not_free() -> None:
    revoking = replace(A, state=MemberState.UNREVOKED_TASKS, assigned=given_at(5, 1), to_revoke=given_at(5, 0))
    other = Member("b", 5, 4, process_id="B")
    assert step(other, 6, active(0), owners(revoking, other)).state is MemberState.UNRELEASED_TASKS


def test_a_process_does_not_get_a_copy_of_its_active_task() -> None:
    sibling = Member("c", 5, 4, process_id="A")
    assert step(sibling, 6, standby(0), owners(A, sibling)).state is MemberState.UNRELEASED_TASKS
    elsewhere = replace(sibling, process_id="B")
    found = step(elsewhere, 6, standby(0), owners(A, elsewhere))
    assert (found.state, found.assigned.standby) == (MemberState.STABLE, {"0": frozenset({0})})


def test_a_process_does_not_get_the_active_task_of_its_copy() -> None:
    copy = Member("c", 5, 4, process_id="B", assigned=AssignedTasks({}, {"0": frozenset({2})}, {}))
    other = Member("d", 5, 4, process_id="B")
    assert step(other, 6, active(2), owners(copy, other)).state is MemberState.UNRELEASED_TASKS
    assert step(other, 6, active(2), owners(other)).state is MemberState.STABLE


def test_a_member_in_an_unknown_state_must_come_with_nothing() -> None:
    unknown = replace(A, state=MemberState(99), assigned=NONE_ASSIGNED)
    assert unknown.state is MemberState.UNKNOWN
    assert reconcile_member(unknown, 6, active(2), owners(), None) is None
    assert reconcile_member(unknown, 6, active(2), owners(), active(1)) is None
    assert step(unknown, 6, active(2), owners(), owned=NO_TASKS).state is MemberState.STABLE


def test_what_a_member_reports_is_compared_with_what_it_was_given() -> None:
    assert A.owns_only_assigned(active(0))
    assert A.owns_only_assigned(NO_TASKS)
    assert not A.owns_only_assigned(active(0, 2))
    assert not A.owns_only_assigned(standby(0))
    assert not A.owns_only_assigned(None)


def test_owners_are_counted_over_members() -> None:
    found = owners(A)
    found.remove(A)
    assert not found.active
    found.add(A)
    found.remove(replace(A, process_id="B"))
    assert found.active == {("0", 0): "A", ("0", 1): "A"}


def tasks_of(draw: st.DrawFn) -> TaskSet:
    partitions = draw(st.frozensets(st.integers(0, 5)))
    return {"0": partitions} if partitions else {}


@st.composite
def targets(draw: st.DrawFn) -> dict[str, Tasks]:
    """Targets of three members: each task active at one of them, and a copy at another."""
    found: dict[str, tuple[set[int], set[int]]] = {key: (set(), set()) for key in "abc"}
    for partition in range(6):
        first, second = draw(st.permutations("abc"))[:2]
        found[first][0].add(partition)
        found[second][1].add(partition)
    return {
        key: Tasks({"0": frozenset(act)} if act else {}, {"0": frozenset(copy)} if copy else {}, {})
        for key, (act, copy) in found.items()
    }


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(targets(), min_size=1, max_size=4), st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40)
)
def test_no_task_has_two_owners_on_any_way(chain: list[dict[str, Tasks]], steps: list[tuple[str, bool]]) -> None:
    members = {key: Member(key, process_id=key.upper()) for key in "abc"}
    taken = owners(*members.values())
    rounds = [(epoch, target) for epoch, target in enumerate(chain, start=2)]
    for number, (key, reports) in enumerate([*steps, *((key, True) for _ in range(20) for key in "abc")]):
        epoch, target = rounds[min(number // 8, len(rounds) - 1)]
        member = members[key]
        owned = Tasks({k: frozenset(v) for k, v in member.assigned.active.items()}, member.assigned.standby, {})
        found = step(member, epoch, target[key], taken, owned if reports else None)
        taken.remove(member)
        taken.add(found)
        members[key] = found
        active_tasks = [
            task
            for each in members.values()
            for tasks in (each.assigned, each.to_revoke)
            for task in task_ids_of(tasks.active)
        ]
        assert len(active_tasks) == len(set(active_tasks))
    epoch, target = rounds[-1]
    assert all(member.is_reconciled_to(epoch) for member in members.values())
    assert {key: frozenset(task_ids_of(each.assigned.active)) for key, each in members.items()} == {
        key: frozenset(task_ids_of(each.active)) for key, each in target.items()
    }
