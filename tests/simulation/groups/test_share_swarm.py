"""Random members of share groups under a coordinator that is taken over; each rule of the swarm is shown to fail."""

from __future__ import annotations

import pytest

from moldau.coordinator.share import heartbeat, state_topics
from moldau.coordinator.share.group import ShareGroup
from tests.simulation.groups.share_swarm import ShareSwarm
from tests.support.drawn_steps import Violation

SEEDS = 12
SEEDS_OF_FAULTS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_share_groups_settle(seed: int) -> None:
    ShareSwarm(seed).run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_whose_targets_threads_compute_settle(seed: int) -> None:
    ShareSwarm(seed, target_size_at_once=0).run()


def run_many() -> None:
    for seed in range(SEEDS_OF_FAULTS):
        ShareSwarm(seed).run()


def test_a_state_that_begins_anew_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the time at which an initialization began, every heartbeat begins one."""
    partitions_to_initialize = state_topics.partitions_to_initialize

    def forget(step: object, group: ShareGroup, topics: object) -> object:
        group.initialized_ms.clear()
        return partitions_to_initialize(step, group, topics)  # type: ignore[arg-type]

    monkeypatch.setattr(state_topics, "partitions_to_initialize", forget)
    with pytest.raises(Violation, match=r"initialized again|begin anew"):
        run_many()


def test_an_epoch_of_long_ago_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "member_epoch_refusal", lambda *_: None)
    with pytest.raises(Violation, match="is taken"):
        run_many()
