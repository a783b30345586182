"""The scenarios of Kafka's own simulation of its quorum, over many seeds."""

from __future__ import annotations

import pytest

from tests.simulation.raft.world import World

SEEDS = range(5)
ELECTED_MS = 15_000
PROGRESS_MS = 30_000


def started(seed: int, nodes: int = 5, **options: int) -> World:
    print(f"SEED={seed}")
    world = World(seed, nodes, **options)
    world.start()
    world.write(every_ms=20)
    return world


def elected(seed: int, nodes: int = 5) -> World:
    world = started(seed, nodes)
    world.run_until(world.has_leader, ELECTED_MS)
    world.await_progress(10, PROGRESS_MS)
    return world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_an_initial_leader_is_elected(seed: int, nodes: int) -> None:
    elected(seed, nodes)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_leader_is_elected_after_the_old_one_failed(seed: int) -> None:
    world = elected(seed)
    old = world.leader
    assert old is not None
    old.crash()
    world.run_until(lambda: world.has_leader(old.node_id), ELECTED_MS)
    world.await_progress(10, PROGRESS_MS, [node_id for node_id in world.hosts if node_id != old.node_id])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_is_elected_after_all_nodes_were_killed(seed: int) -> None:
    world = elected(seed)
    for host in world.hosts.values():
        host.crash()
    world.start()
    world.await_progress(10, PROGRESS_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_is_elected_after_the_old_one_was_cut_off(seed: int) -> None:
    """It resigns by itself, and follows once it is back."""
    world = elected(seed)
    old = world.leader
    assert old is not None
    world.cut_off(old.node_id)
    world.run_until(lambda: world.has_leader(old.node_id), ELECTED_MS)
    world.run_until(lambda: not old.raft.is_leader, ELECTED_MS)
    world.heal()
    world.await_progress(10, PROGRESS_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_progress_is_made_while_a_majority_is_reachable(seed: int) -> None:
    world = elected(seed)
    world.cut_off(1, 2)
    world.await_progress(10, PROGRESS_MS, [3, 4, 5])
    world.heal()
    world.await_progress(10, PROGRESS_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_progress_is_made_after_one_leader_failed_after_the_other(seed: int) -> None:
    world = elected(seed)
    for _ in range(5):
        leader = world.leader
        assert leader is not None
        leader.crash()
        world.run_until(lambda failed=leader: world.has_leader(failed.node_id), ELECTED_MS)  # type: ignore[misc]
        world.start()
        world.await_progress(10, PROGRESS_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_node_recovers_from_the_loss_of_what_was_committed(seed: int) -> None:
    """Its disk is new; the others still have every record, and it does not help to elect a node without them."""
    world = elected(seed)
    lost = world.hosts[1 + seed % 5]
    lost.crash()
    world.run_for(5000)
    lost.lose_disk()
    lost.start()
    world.await_progress(10, PROGRESS_MS)
