"""Backups, restores and captures without a cluster keep every rule, and a seed is one story."""

from __future__ import annotations

from typing import Final

from tests.simulation.backups.swarm import Swarm

SEEDS: Final = 30


def test_seeds_keep_every_rule() -> None:
    kills = restores = captured = 0
    for seed in range(SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        kills, restores, captured = kills + swarm.kills, restores + swarm.restores, captured + swarm.captured
    assert kills > SEEDS / 3 and restores > SEEDS and captured > SEEDS, "hardly anything was killed or restored"


def test_equal_seeds_tell_equal_stories() -> None:
    ends = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        ends.append((swarm.history.now_ms, swarm.kills, swarm.captured, sorted(swarm.bucket.contents())))
    assert ends[0] == ends[1]
