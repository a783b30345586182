"""The log eraser without a cluster keeps every rule, and a seed is one story."""

from __future__ import annotations

from typing import Final

from tests.simulation.erasure.swarm import Swarm

SEEDS: Final = 30


def test_seeds_keep_every_rule() -> None:
    orders = looks = 0
    for seed in range(SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        orders, looks = orders + len(swarm.model.orders), looks + swarm.looks
    assert orders > 2 * SEEDS and looks > 3 * SEEDS, "hardly anything was ordered, or looked at"


def test_equal_seeds_tell_equal_stories() -> None:
    digests = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        digests.append((swarm.world.digest(), swarm.looks))
    assert digests[0] == digests[1]
