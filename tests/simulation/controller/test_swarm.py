"""The controller alone keeps every rule; a seed is one story; and what is broken in it is found."""

from __future__ import annotations

import pytest

from moldau.kraft.controller.partitions import partition_change, reassignment
from tests.simulation.controller.swarm import Swarm
from tests.simulation.invariants.observation import Violation

SEEDS = 20


def test_seeds_keep_every_rule() -> None:
    committed = 0
    for seed in range(1000, 1000 + SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        committed += sum(each.committed for each in swarm.data.values())
    assert committed > SEEDS * 20, "hardly anything happened"


def test_equal_seeds_tell_equal_stories() -> None:
    ends = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        held = {key: (each.committed, each.held) for key, each in swarm.data.items()}
        ends.append((swarm.offset, swarm.now_ms, held))
    assert ends[0] == ends[1]


def test_replicas_that_stay_eligible_beside_enough_in_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_change, "has_enough_in_sync", lambda target, terms: False)
    with pytest.raises(Violation):
        run_many()


def test_a_move_that_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_change, "with_reassignment_ended", lambda target: target)
    with pytest.raises(Violation, match="after everything healed"):
        run_many()


def test_a_move_that_does_not_say_whom_it_adds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = reassignment.begin_reassignment

    def forgetful(*args: object, **options: object) -> object:
        wanted = begun(*args, **options)  # type: ignore[arg-type]
        return wanted._replace(adding=None) if isinstance(wanted, partition_change.RequestedChange) else wanted

    monkeypatch.setattr(reassignment, "begin_reassignment", forgetful)
    with pytest.raises(Violation):
        run_many()


def run_many() -> None:
    for seed in range(SEEDS):
        Swarm(seed).run()
