"""The groups without a network keep every rule; a seed is one story; and what is broken in them is found."""

from __future__ import annotations

import pytest

from moldau.coordinator.classic.kind import ClassicKind
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.offsets.offset_store import OffsetStore
from tests.simulation.groups.swarm import Swarm
from tests.support.drawn_steps import Violation

SEEDS = 60


def test_seeds_keep_every_rule() -> None:
    generations = 0
    for seed in range(1000, 1000 + SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        generations += len(swarm.member_rules.plans)
    assert generations > SEEDS * 2, "hardly anything happened"


def test_equal_seeds_tell_equal_stories() -> None:
    ends = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        ends.append(([stored.data for stored in swarm.stage.log], swarm.stage.epoch))
    assert ends[0] == ends[1]


def test_offsets_that_are_shown_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = OffsetStore.commit
    monkeypatch.setattr(OffsetStore, "commit", lambda self, end_offset: commit(self, 1 << 60))
    with pytest.raises(Violation, match="committed is"):
        run_many()


def test_a_plan_that_is_told_before_it_is_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupStep, "when_committed", lambda self, outcome: outcome.on_committed(self))
    with pytest.raises(Violation):
        run_many()


def test_sessions_that_a_new_coordinator_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicKind, "on_loaded", lambda *_: None)
    with pytest.raises(Violation, match="not heard of"):
        run_many()


def run_many() -> None:
    for seed in range(SEEDS):
        Swarm(seed).run()
