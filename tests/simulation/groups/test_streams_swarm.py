"""Random members of Streams groups under a coordinator that is taken over; each rule of the swarm is shown to fail."""

from __future__ import annotations

import pytest

from moldau.coordinator.streams.member import TaskOwners
from moldau.coordinator.streams.tasks import AssignedTasks
from tests.simulation.groups.streams_swarm import StreamsSwarm
from tests.support.drawn_steps import Violation

SEEDS = 12
SEEDS_OF_FAULTS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_streams_groups_settle(seed: int) -> None:
    StreamsSwarm(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_whose_targets_threads_compute_settle(seed: int) -> None:
    StreamsSwarm(seed, target_size_at_once=0).run()


def run_many() -> None:
    for seed in range(SEEDS_OF_FAULTS):
        StreamsSwarm(seed).run()


def test_a_task_that_is_active_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskOwners, "is_active_taken", lambda *_: False)
    with pytest.raises(Violation, match=r"is active on|twice"):
        run_many()


def test_tasks_that_are_never_revoked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AssignedTasks, "is_empty", property(lambda _: True))
    with pytest.raises(Violation):
        run_many()
