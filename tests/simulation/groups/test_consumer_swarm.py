"""Random members of consumer groups under a coordinator that is taken over; each rule of the swarm is shown to fail."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.consumer.kind import CONSUMER
from moldau.coordinator.runtime.step import RestorableTimers
from moldau.coordinator.shard import shard
from tests.simulation.groups.consumer_swarm import ConsumerSwarm
from tests.support.drawn_steps import Violation

SEEDS = 12
SEEDS_OF_FAULTS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_consumer_groups_settle(seed: int) -> None:
    ConsumerSwarm(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_whose_targets_threads_compute_settle(seed: int) -> None:
    ConsumerSwarm(seed, target_size_at_once=0).run()


def run_many() -> None:
    for seed in range(SEEDS_OF_FAULTS):
        ConsumerSwarm(seed).run()


def test_timers_that_a_refused_write_consumes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose removal the log refused would stay for ever."""
    monkeypatch.setattr(RestorableTimers, RestorableTimers.restore.__name__, lambda *_: None)
    with pytest.raises(Violation, match=r"not heard of|quiet rounds"):
        run_many()


def test_what_is_told_before_its_record_is_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat without changes after a write that was not committed in time."""
    keep = shard.GroupShard._keep

    def forget(self: shard.GroupShard, step: Any) -> None:
        self._appended_end_offset = 0
        keep(self, step)

    monkeypatch.setattr(shard.GroupShard, keep.__name__, forget)
    with pytest.raises(Violation, match="not committed"):
        run_many()


def test_heartbeats_that_are_answered_without_a_step_after_the_group_moved_on_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member would keep the partitions of the former epoch."""
    swarms = [ConsumerSwarm(seed) for seed in range(SEEDS)]
    for swarm in swarms:
        swarm.run()
    assert sum(swarm.stage.repeated_count for swarm in swarms) > SEEDS
    monkeypatch.setattr(type(CONSUMER), CONSUMER.is_settled.__name__, lambda *_: True)
    with pytest.raises(Violation, match="without a step"):
        run_many()
