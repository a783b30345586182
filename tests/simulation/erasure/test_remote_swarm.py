"""The eraser of one partition in remote storage, without a cluster, keeps every rule, and a seed is one story."""

from __future__ import annotations

from typing import Final

from tests.simulation.erasure.remote_swarm import Swarm

SEEDS: Final = 20


def test_seeds_keep_every_rule() -> None:
    orders = erased = terms = 0
    for seed in range(SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        orders, terms = orders + len(swarm.orders), terms + swarm.terms
        erased += len(swarm.remote.changes)
    assert orders > SEEDS and terms > 2 * SEEDS and erased > 10 * SEEDS, "hardly anything was ordered or copied"


def test_equal_seeds_tell_equal_stories() -> None:
    digests = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        digests.append((swarm.world.digest(), swarm.looks, swarm.remote.changes))
    assert digests[0] == digests[1]
