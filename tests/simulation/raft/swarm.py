"""Random faults for one seed: which kinds, how often, how bad; then all heals, and the quorum has to work again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.kraft.raft.member import METADATA_TOPIC
from moldau.protocol.messages.vote import PartitionData, TopicData, VoteRequest
from tests.simulation.raft.host import Host
from tests.simulation.raft.world import World

FAULTS_MS: Final = 5_000
"""How long there are faults."""
RECOVERY_MS: Final = 20_000
"""How long the quorum may take to work again once there are none."""
RECORDS: Final = 5
VOTERS_MIN: Final = 3


class Swarm:
    """A seed draws the kinds of faults that it has at all: some hide bugs, for they keep the quorum from working."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed, *_sizes(seed), kraft_version=0 if seed % 5 == 4 else 1)
        seeded = world.random
        kinds: list[Callable[[], None]] = [
            self.crash_one,
            self.crash_leader,
            self.crash_all,
            self.crash_who_saves,
            self.cut_off_one,
            self.cut_one_way,
            self.join,
            self.slow_disk,
            self.lose,
            self.snapshot,
            self.echo,
            self.replace_disk,
            self.stray_vote,
        ]
        if world.hosts[1].initial is not None:
            kinds += [self.add_voter, self.remove_voter]
        self.kinds = seeded.sample(kinds, seeded.randint(1, len(kinds)))
        self._may_replace_disk = voters_may_lose_one(world, self.kinds, self.add_voter, self.remove_voter)
        self.pause_ms = seeded.choice((100, 300, 800))

    def run(self) -> None:
        world = self.world
        world.start()
        world.write(every_ms=world.random.choice((10, 50, 200)))
        if world.random.random() < 0.7:
            world.run_until(world.has_leader, RECOVERY_MS)
        self._strike()
        world.run_for(FAULTS_MS)
        self.kinds = []
        world.heal()
        world.await_progress(RECORDS, RECOVERY_MS)
        world.run_until(self._is_at_rest, RECOVERY_MS)
        world.invariants.at_rest(world)

    def _is_at_rest(self) -> bool:
        """L1: one node leads, and all follow it."""
        leader = self.world.leader
        return leader is not None and all(host.raft.leader_id == leader.node_id for host in self.world.hosts.values())

    def _strike(self) -> None:
        if self.kinds:
            self.world.random.choice(self.kinds)()
            self.world.after(self.world.random.randint(1, 2 * self.pause_ms), None, self._strike)

    # Faults

    def crash_one(self) -> None:
        self._crash(self.world.random.choice(list(self.world.hosts)))

    def crash_leader(self) -> None:
        if self.world.leader is not None:
            self._crash(self.world.leader.node_id)

    def crash_all(self) -> None:
        if self.world.random.random() < 0.3:
            for node_id in self.world.hosts:
                self._crash(node_id)

    def crash_who_saves(self) -> None:
        """Between a vote and its durability, back at once."""
        saving = [host for host in self.world.hosts.values() if host.is_up and host.is_saving]
        for host in saving:
            host.crash()
            host.start()
        if self.kinds:
            self.world.after(self.world.random.randint(1, 10), None, self.crash_who_saves)

    def _crash(self, node_id: int) -> None:
        world = self.world
        world.hosts[node_id].crash()
        world.after(world.random.choice((1, 100, 2000)), None, lambda: world.start([node_id]))

    def cut_off_one(self) -> None:
        self.world.cut_off(self.world.random.choice(list(self.world.hosts)))

    def cut_one_way(self) -> None:
        one, other = self.world.random.sample(list(self.world.hosts), 2)
        self.world.network.cuts.add((one, other))

    def join(self) -> None:
        self.world.network.cuts.clear()

    def slow_disk(self) -> None:
        host = self.world.random.choice(list(self.world.hosts.values()))
        host.disk_delay_ms = self.world.random.choice((0, 3, 30, 500))

    def lose(self) -> None:
        network, seeded = self.world.network, self.world.random
        network.loss = seeded.choice((0.0, 0.05, 0.3))
        network.doubling = seeded.choice((0.0, 0.3))
        network.delay_ms = seeded.choice((0, 2, 20, 200))

    def snapshot(self) -> None:
        host = self.world.random.choice(list(self.world.hosts.values()))
        if host.is_up:
            host.take_snapshot()

    def echo(self) -> None:
        self.world.network.echo(20)

    def stray_vote(self) -> None:
        """Others stood in the epoch that a node is in, or led, with logs as long as can be: a node that voted in it
        grants no other vote, in any role."""
        seeded, network = self.world.random, self.world.network
        hosts = [host for host in self.world.hosts.values() if host.is_up and host.raft.epoch > 0]
        for answerer in hosts:
            asker = seeded.choice(list(self.world.hosts.values()))
            if asker is not answerer:
                network.stray(asker, answerer, vote_request(asker, answerer))

    def replace_disk(self) -> None:
        """Of one node in a run, if the voters stay the same: the others have what it had, and are still enough."""
        if self._may_replace_disk:
            self._may_replace_disk = False
            host = self.world.random.choice(list(self.world.hosts.values()))
            host.crash()
            host.replace_disk()
            self.world.after(self.world.random.choice((1, 100)), None, lambda: self.world.start([host.node_id]))

    def add_voter(self) -> None:
        self.world.add_voter(self.world.random.choice(list(self.world.hosts)))

    def remove_voter(self) -> None:
        self.world.remove_voter(self.world.random.choice(list(self.world.hosts)))


def vote_request(asker: Host, answerer: Host) -> VoteRequest:
    partition = PartitionData(
        partition_index=0,
        replica_epoch=answerer.raft.epoch,
        replica_id=asker.node_id,
        replica_directory_id=asker.directory_id,
        voter_directory_id=answerer.directory_id,
        last_offset_epoch=answerer.raft.epoch - 1,
        last_offset=1 << 40,
        pre_vote=False,
    )
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id="cluster", voter_id=answerer.node_id, topics=[topic])


def voters_may_lose_one(world: World, kinds: list[Callable[[], None]], *changes: Callable[[], None]) -> bool:
    """If the log names the voters, they are at least three, and no request changes them."""
    initial = world.hosts[1].initial
    is_named = initial is not None and initial.voters is not None and len(initial.voters.by_id) >= VOTERS_MIN
    return is_named and not any(change in kinds for change in changes)


def _sizes(seed: int) -> tuple[int, int]:
    """Nodes, and how many of them vote at first."""
    return ((3, 3), (4, 3), (5, 5), (5, 3), (3, 2))[seed % 7 % 5]
