"""The replicas without a network keep every invariant; a seed is one story; and what is broken in them is found."""

from __future__ import annotations

import pytest

from moldau.replication.leadership import InSyncSet
from moldau.storage.checkpoints.leader_epochs import LeaderEpochs
from tests.simulation.invariants.observation import Violation
from tests.simulation.replicas.swarm import KEY, Swarm

SEEDS = 40


def test_seeds_keep_every_invariant() -> None:
    acknowledged = 0
    for seed in range(1000, 1000 + SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        acknowledged += len(swarm.acknowledged)
    assert acknowledged > SEEDS * 10, "hardly anything happened"


def test_equal_seeds_tell_equal_stories() -> None:
    ends = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        ends.append((swarm.acknowledged, swarm.now_ms, sorted(swarm._committed[KEY].batches)))
    assert ends[0] == ends[1]


def test_a_set_that_shrinks_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InSyncSet, "maximal", property(lambda self: self.proposed or self.confirmed))
    with pytest.raises(Violation):
        run_many()


def test_epochs_that_a_truncation_leaves_behind_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)
    with pytest.raises(Violation):
        run_many()


def run_many() -> None:
    for seed in range(SEEDS):
        Swarm(seed).run()
