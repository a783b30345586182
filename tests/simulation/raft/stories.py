"""Scripted stories of the quorum's machines, for what chance would meet too rarely; the invariants look on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.kraft.raft.election_state import ElectionState
from moldau.protocol.errors import ErrorCode
from tests.simulation.raft.host import Host
from tests.simulation.raft.world import World

ELECTED_MS: Final = 15_000
PROGRESS_MS: Final = 30_000
ROUNDS: Final = 12
ANSWERED_MS: Final = 4_000
FETCH_TIMEOUT_MS: Final = 2_000


def leaders_in_quick_succession(seed: int) -> None:
    """Each is cut off as soon as it leads, some before anybody has heard of it, and writes on; those before it are back
    meanwhile. So logs have tails of many epochs, longer and shorter ones, and what was sent long ago arrives."""
    for nodes, delay_ms in ((3, 3), (5, 3), (3, 300), (5, 300)):
        world = World(seed * 4 + nodes + delay_ms, nodes)
        for host in world.hosts.values():
            host.disk_delay_ms = world.random.choice((0, delay_ms))
        world.start()
        world.write(every_ms=15)
        epoch = 0
        for _ in range(ROUNDS):
            leader = newer_leader(world, epoch)
            epoch = leader.raft.epoch
            world.run_for(world.random.choice((0, 1, 3, 8, 30)))
            world.network.cuts.clear()
            if world.random.random() < 0.5:
                world.network.echo(20)
            if world.random.random() < 0.7:
                world.cut_off(leader.node_id)
            else:
                leader.crash()
                world.after(world.random.choice((1, 2000)), None, world.start)
        world.heal()
        world.await_progress(5, PROGRESS_MS)
        world.run_for(FETCH_TIMEOUT_MS)
        world.invariants.at_rest(world)


def newer_leader(world: World, epoch: int) -> Host:
    world.run_until(lambda: world.leader is not None and world.leader.raft.epoch > epoch, 4 * ELECTED_MS)
    assert world.leader is not None
    return world.leader


def elected(world: World) -> Host:
    world.start()
    world.write(every_ms=20)
    world.run_until(world.has_leader, ELECTED_MS)
    world.await_progress(5, PROGRESS_MS)
    assert world.leader is not None
    return world.leader


def who_has_a_new_disk_is_no_voter(seed: int) -> None:
    """It has read who votes, and that is another one with its id. `Invariants.asks` hears of it if it stands, and of
    what it counts for."""
    world = World(seed, 3)
    leader = elected(world)
    replaced, other = (host for host in world.hosts.values() if host is not leader)
    replaced.crash()
    replaced.replace_disk()
    world.start()
    world.await_progress(5, PROGRESS_MS)
    world.cut_off(other.node_id)
    world.run_for(FETCH_TIMEOUT_MS)  # nothing is committed: `Invariants.committed`
    world.heal()
    world.run_until(world.has_leader, ELECTED_MS)
    for _ in range(3):
        assert world.leader is not None
        failed = world.leader
        failed.crash()
        world.run_for(5 * FETCH_TIMEOUT_MS)
        world.start()
        world.run_until(world.has_leader, ELECTED_MS)
    world.await_progress(5, PROGRESS_MS)


def the_next_change_of_the_voters_waits_for_the_last(seed: int) -> None:
    """Also if no client waits for the response any more, and if another leader began it. `Invariants.appended`
    sees two under way."""
    for wait_ms in (0, 1, 2300, 2600):
        world = World(seed * 4 + wait_ms, 5, 4)
        leader = elected(world)
        first, second, third = [host.node_id for host in world.hosts.values() if host is not leader][:3]
        world.cut_off(first, second)
        world.network.cuts |= {(third, leader.node_id)}
        world.remove_voter(first)
        world.run_for(wait_ms)
        for node_id in (second, third, 5):
            world.remove_voter(node_id)
            world.add_voter(node_id)
            world.run_for(3)
        world.heal()
        leader.crash()
        world.start()
        for _ in range(20):
            world.remove_voter(second)
            world.add_voter(5)
            world.run_for(100)
        world.await_progress(5, PROGRESS_MS)
        world.run_for(FETCH_TIMEOUT_MS)
        world.invariants.at_rest(world)


def a_leader_that_hears_of_too_few_resigns(seed: int) -> None:
    """A node that still sends it requests would wait for ever. It is a voter itself, or no longer one."""
    world = World(seed, 5)
    leader = elected(world)
    faithful = next(host for host in world.hosts.values() if host is not leader)
    world.cut_off(leader.node_id, faithful.node_id)
    world.run_until(lambda: not leader.raft.is_leader, 3 * FETCH_TIMEOUT_MS)
    world.heal()
    world.await_progress(5, PROGRESS_MS)
    assert world.leader is not None
    removed = world.leader.node_id
    world.remove_voter(removed)
    world.run_until(lambda: world.has_leader(removed), PROGRESS_MS)
    world.await_progress(5, PROGRESS_MS)


def who_lost_its_quorum_state_is_in_the_epoch_of_its_log(seed: int) -> None:
    """`Invariants.stepped` sees an epoch before that of its log."""
    world = World(seed, 3)
    leader = elected(world)
    for _ in range(2):
        leader.crash()
        world.run_until(lambda gone=leader: world.has_leader(gone.node_id), ELECTED_MS)  # type: ignore[misc]
        world.start()
        world.await_progress(5, PROGRESS_MS)
        assert world.leader is not None
        leader = world.leader
    follower = next(host for host in world.hosts.values() if host is not leader)
    follower.crash()
    follower.election = ElectionState()
    world.start()
    world.await_progress(5, PROGRESS_MS)


def who_comes_back_to_a_snapshot_knows_its_voters(seed: int) -> None:
    """They changed while it was away, and the log that said so is gone. `Invariants.described` looks."""
    world = World(seed, 5, 3)
    leader = elected(world)
    away, other = (host for host in world.hosts.values() if host is not leader and host.node_id <= 3)
    world.cut_off(away.node_id)
    world.add_voter(4)
    world.run_for(FETCH_TIMEOUT_MS // 2)
    world.remove_voter(other.node_id)
    world.run_for(FETCH_TIMEOUT_MS // 2)
    for host in world.hosts.values():
        if host is not away:
            host.take_snapshot()
    world.heal()
    world.await_progress(5, PROGRESS_MS)
    for host in world.hosts.values():
        world.invariants.described(host)
    assert away.log.start_offset > 0, "it came back to a snapshot"


def whoever_asks_for_a_change_of_the_voters_is_answered(seed: int) -> None:
    """Also of a leader that resigns meanwhile; `Invariants.at_rest` counts those who wait for ever."""
    world = World(seed, 4, 3)
    for is_add in (True, False):
        leader = elected(world)
        follower = next(host for host in world.hosts.values() if host is not leader and host.node_id != 4)
        world.cut_off(leader.node_id)
        world.run_for(FETCH_TIMEOUT_MS)  # it resigns before the request's own time is over
        token = world.add_voter(4) if is_add else world.remove_voter(follower.node_id)
        world.run_until(lambda leader=leader: not leader.raft.is_leader, ELECTED_MS)  # type: ignore[misc]
        world.run_for(ANSWERED_MS)
        assert token is not None
        answer = world.answer_to(token)
        assert answer is not None, "it waits for ever"
        assert getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NONE, f"it was answered {answer}"
        world.heal()
        world.await_progress(5, PROGRESS_MS)


ALL: Final[tuple[Callable[[int], None], ...]] = (
    leaders_in_quick_succession,
    who_has_a_new_disk_is_no_voter,
    the_next_change_of_the_voters_waits_for_the_last,
    a_leader_that_hears_of_too_few_resigns,
    who_lost_its_quorum_state_is_in_the_epoch_of_its_log,
    who_comes_back_to_a_snapshot_knows_its_voters,
    whoever_asks_for_a_change_of_the_voters_is_answered,
)
