"""Strikes a cluster with the faults of a plan, and brings back what went down.

Rules that keep it honest: if acknowledgements are not flushed, the power of one node is cut, and its disk refuses
something, only while every partition has all its replicas in sync and the others live on, until the controller counts
on that node no more: of an acknowledged record that lies in page caches alone one in-sync replica must survive. Bits
rot on one node only, in what is durable below its recovery point, and while all replicas of the partition are in sync:
what a crash could tear, a start cuts. Kills, pauses and partitions need no such rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from moldau.broker.config.internal_topics import TRANSACTION_STATE_TOPIC
from moldau.kraft.controller.feature_control import UpgradeType
from moldau.kraft.features import TRANSACTION_VERSION
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.storage.checkpoints.text_checkpoint import RECOVERY_POINT_CHECKPOINT, decode_offsets
from moldau.storage.log.log import Log
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import DiskFaults, Operation
from tests.simulation.cluster.plan import DIRECTORIES, Fault, Plan
from tests.simulation.cluster.storage_strikes import StorageStrikes, mend_storage, switch_copies
from tests.support.cluster import CLUSTER_ID, voter_of
from tests.support.node import Closed

if TYPE_CHECKING:
    from moldau.kraft.image.metadata_image import MetadataImage
    from tests.support.cluster import Cluster, ClusterNode

STOP_S = 20.0
MENDED_S = 20.0
"""A replica that is damaged for so long is the last one in sync: its files are put back, and it is started again."""
COUNTED_ON_S = 20.0
ADMIN_S = 5.0
SECOND_NS = 1_000_000_000
LENGTH_BYTES = range(8, 12)
CRC_BEGINS = 16
"""In a batch of Kafka's format the base offset and the leader epoch, before it, are under no checksum: who reads them
cannot know that they rotted."""


class Nemesis:
    """`strike` until told otherwise; `heal` at the end."""

    def __init__(self, cluster: Cluster, plan: Plan, random: Random) -> None:
        self.struck: dict[str, int] = {}
        self._cluster = cluster
        self._plan = plan
        self._random = random
        self._is_over = False
        self._rebooting: dict[int, None] = {}
        self._rotting: ClusterNode | None = None
        """The one node whose disk rots in this run: the others keep good copies."""
        self._asking: list[asyncio.Task[None]] = []
        self._table: dict[Fault, Callable[[], Awaitable[None]]] = {
            Fault.POWER_CUT: self.power_cut,
            Fault.POWER_CUT_ALL: self.power_cut_all,
            Fault.CUT_AT_STEP: self.cut_at_step,
            Fault.KILL: lambda: self._kill(self._any()),
            Fault.KILL_LEADER: lambda: self._kill(self._leader()),
            Fault.KILL_CONTROLLER: lambda: self._kill(cluster.leader_of_quorum()),
            Fault.KILL_COORDINATOR: lambda: self._kill(self._leader("__consumer_offsets")),
            Fault.KILL_TRANSACTION_COORDINATOR: lambda: self._kill(self._leader(TRANSACTION_STATE_TOPIC)),
            Fault.KILL_ALL: self.kill_all,
            Fault.STOP: lambda: self._stop(self._any()),
            Fault.ROLL: self.roll,
            Fault.PAUSE: lambda: self._pause(self._any()),
            Fault.PAUSE_LEADER: lambda: self._pause(self._leader()),
            Fault.ISOLATE: lambda: self._isolate(self._any()),
            Fault.ISOLATE_LEADER: lambda: self._isolate(self._leader()),
            Fault.ISOLATE_CONTROLLER: lambda: self._isolate(cluster.leader_of_quorum()),
            Fault.CUT_ONE_WAY: self.cut_one_way,
            Fault.SLOW_LINK: self.slow_link,
            Fault.RESET: self.reset,
            Fault.STALL_LINK: self.stall_link,
            Fault.SLOW_DISK: self.slow_disk,
            Fault.STALL_DISK: self.stall_disk,
            Fault.DISK_ERROR: self.disk_error,
            Fault.FULL_DISK: self.full_disk,
            Fault.WALL_JUMP: self.wall_jump,
            Fault.BIT_ROT: self.bit_rot,
            Fault.LOSE_DIRECTORY: self.lose_directory,
            Fault.MOVE_LEADERS: self.move_leaders,
            Fault.REASSIGN: self.reassign,
            Fault.CHANGE_VOTERS: self.change_voters,
            Fault.MOVE_TRANSACTION_VERSION: self.move_transaction_version,
            **StorageStrikes(cluster, plan, random).table(),
        }

    async def work(self) -> None:
        """Rotating subsets, the empty one among them: now and then the cluster comes to itself."""
        while self._plan.faults and not self._is_over:
            await asyncio.sleep(self._random.random() * 2 * self._plan.strike_every_s)
            if self._is_over:
                break
            fault = self._random.choice(self._plan.faults)
            self.struck[fault.value] = self.struck.get(fault.value, 0) + 1
            self._cluster.world.event("strike", fault.value)
            await self._table[fault]()
            if self._random.random() < 0.1:
                self._mend()

    def end(self) -> None:
        self._is_over = True

    async def heal(self) -> None:
        """Everything works again, everybody is up."""
        self.end()
        self._cluster.world.event("heal")
        self._mend()
        for node in self._cluster.nodes.values():
            node.host.resume()
            node.host.disk.crash_at_step = None
            node.host.disk.faults = DiskFaults()
            node.host.disk.mend_directories()
            mend_storage(node)
        await asyncio.sleep(1)
        for node in self._cluster.nodes.values():
            if node.is_up and self._is_impaired(node):
                node.kill()  # an operator starts a broker again that lost its log directory
            if not node.is_up:
                self._boot(node)
        if self._plan.is_tiered:
            await switch_copies(self._cluster, self._plan, is_on=True)

    @staticmethod
    def _is_impaired(node: ClusterNode) -> bool:
        return node.broker is not None and bool(node.broker.logs.offline)

    def _mend(self) -> None:
        network = self._cluster.world.network
        network.heal()
        for one in network.nodes:
            for other in network.nodes:
                network.slow(one, other, 1)

    async def operate(self) -> None:
        """Brings back whoever halted or was left dark."""
        down: dict[int, float] = {}
        damaged: dict[int, float] = {}
        while True:
            await asyncio.sleep(0.5)
            for node in self._cluster.nodes.values():
                if node.is_up and node.broker is not None and len(node.broker.damaged):
                    if damaged.setdefault(node.id, self._cluster.world.now_s) < self._cluster.world.now_s - MENDED_S:
                        node.host.disk.mend_rot()
                        node.kill()
                else:
                    damaged.pop(node.id, None)
                if self._is_impaired(node) and self._random.random() < 0.2:
                    node.host.disk.faults = DiskFaults()
                    self._repair(node)
                    node.kill()
                if node.is_up or node.id in self._rebooting:
                    down.pop(node.id, None)
                elif down.setdefault(node.id, self._cluster.world.now_s) < self._cluster.world.now_s - 2:
                    self._repair(node)
                    self._boot(node)

    def _repair(self, node: ClusterNode) -> None:
        """An operator looks after its disks, mostly."""
        if self._plan.directories > 1 and self._random.random() < 0.7:
            node.host.disk.mend_directories()

    # Whom

    def _up(self) -> list[ClusterNode]:
        return [node for node in self._cluster.nodes.values() if node.is_up]

    def _any(self) -> ClusterNode | None:
        up = self._up()
        return self._random.choice(up) if up else None

    def _leader(self, topic: str | None = None) -> ClusterNode | None:
        """Of some partition, as its broker sees it."""
        leading = [
            node
            for node in self._up()
            if node.broker is not None
            and any(each.is_leader and topic in (None, each.topic) for each in node.broker.replicas)
        ]
        return self._random.choice(leading) if leading else self._any()

    def _may_lose_cache(self, victim: ClusterNode) -> bool:
        """Whether this one may lose what is not durable, all others keeping it."""
        if self._plan.flushes:
            return True
        if self._cluster.world.network.is_divided or any(each.host.is_paused for each in self._cluster.nodes.values()):
            return False  # somebody else may be taken for dead before this one is
        up, newest = self._up(), self._newest_image()
        if len(up) < len(self._cluster.nodes) or newest is None:
            return False
        return all(
            len(assigned.isr) == len(assigned.replicas) > 1 for _, _, assigned in newest.topics.partitions()
        ) and all(self._is_current(node) for node in up)

    @staticmethod
    def _is_current(node: ClusterNode) -> bool:
        broker = node.broker
        if broker is not None and not broker.config.is_broker:
            return True  # what it holds it has synced
        known = broker.image.cluster.brokers.get(node.id) if broker is not None else None
        registration = getattr(broker, "registration", None)
        return known is not None and registration is not None and known.epoch == registration.epoch

    def _newest_image(self) -> MetadataImage | None:
        images = [node.broker.image for node in self._up() if node.broker is not None]
        return max(images, key=lambda image: image.provenance.end_offset, default=None)

    async def _until_not_counted_on(
        self, node: ClusterNode, epoch: int, lost: Sequence[tuple[str, int]] | None = None
    ) -> None:
        """Who lost what was not durable counts as in sync until the controller has heard of its end. Strikes wait so
        long: were the others taken out first, none of them having lost anything, this one alone would be left. A broker
        that goes on may have lost these partitions alone, and may be eligible for them at best."""
        for _ in range(0 if self._plan.flushes else int(COUNTED_ON_S / 0.05)):
            await asyncio.sleep(0.05)
            image = self._newest_image()
            broker = image.cluster.brokers.get(node.id) if image is not None else None
            if image is not None and (
                broker is None
                or broker.epoch != epoch
                or not any(
                    node.id in (*each.isr, *each.eligible_leader_replicas) for _, _, each in image.topics.partitions()
                )
                or (lost is not None and node.is_up and not any(_is_in_sync(image, node.id, *each) for each in lost))
            ):
                return

    # Processes

    def _boot(self, node: ClusterNode) -> None:
        random, plan, host = self._random, self._plan, node.host
        host.may_halt = True
        if plan.rate_ppm_max:
            host.clock_rate_ppm = random.randint(-plan.rate_ppm_max, plan.rate_ppm_max)
        node.boot()

    async def _kill(self, node: ClusterNode | None) -> None:
        if node is not None and node.is_up:
            node.kill()
            await self._bring_back(node)

    async def _bring_back(self, node: ClusterNode) -> None:
        self._rebooting[node.id] = None
        delay_s = self._random.choice((0.0, 0.05, 0.5, 3.0, 8.0))

        def boot() -> None:
            self._rebooting.pop(node.id, None)
            if not node.is_up and not self._is_over:
                self._boot(node)

        asyncio.get_running_loop().call_later(delay_s, boot)

    async def power_cut(self) -> None:
        node = self._any()
        if node is None:
            return
        if not self._may_lose_cache(node):
            await self._kill(node)
            return
        epoch = epoch_of(node)
        node.crash()
        await self._bring_back(node)
        await self._until_not_counted_on(node, epoch)

    async def power_cut_all(self) -> None:
        assert self._plan.flushes, "nobody promises that"
        for node in self._cluster.nodes.values():
            node.crash()
            await self._bring_back(node)

    async def cut_at_step(self) -> None:
        node = self._any()
        if node is None or not self._may_lose_cache(node):
            return
        epoch = epoch_of(node)
        node.host.disk.crash_at_step = node.host.disk.steps + self._random.randint(1, 40)
        for _ in range(20):
            await asyncio.sleep(0.05)
            if not node.is_up:
                node.broker = None
                node.host.crash()  # the disk loses what was not durable
                await self._bring_back(node)
                await self._until_not_counted_on(node, epoch)
                return
            if not self._may_lose_cache(node):
                break
        node.host.disk.crash_at_step = None

    async def kill_all(self) -> None:
        for node in self._up():
            await self._kill(node)

    async def _stop(self, node: ClusterNode | None) -> None:
        if node is None:
            return
        node.stop()
        for _ in range(int(STOP_S / 0.1)):
            await asyncio.sleep(0.1)
            if not node.is_up:
                break
        else:
            node.kill()
        await self._bring_back(node)

    async def roll(self) -> None:
        for node in list(self._cluster.nodes.values()):
            if node.is_up and not self._is_over:
                await self._stop(node)
                await asyncio.sleep(3)

    async def _pause(self, node: ClusterNode | None) -> None:
        if node is not None:
            node.host.pause()
            life = node.host.life

            def resume() -> None:
                if node.host.life is life:
                    node.host.resume()

            asyncio.get_running_loop().call_later(self._random.choice((0.2, 1.5, 5.0, 12.0)), resume)

    # The network

    def _later_heal(self, *directions: tuple[str, str]) -> None:
        network = self._cluster.world.network

        def heal() -> None:
            for one, other in directions:
                network.heal(one, other)

        asyncio.get_running_loop().call_later(self._random.choice((0.3, 2.0, 6.0, 12.0)), heal)

    async def _isolate(self, node: ClusterNode | None) -> None:
        """From the other brokers; from the clients too, or not: then a deposed leader goes on hearing from them."""
        if node is None:
            return
        network, name = self._cluster.world.network, node.host.name
        others = [each for each in network.nodes if each != name and (each != "driver" or self._random.random() < 0.5)]
        network.partition([name], others)
        self._later_heal(*((name, other) for other in others), *((other, name) for other in others))

    async def cut_one_way(self) -> None:
        one, other = self._random.sample([node.host.name for node in self._cluster.nodes.values()], 2)
        self._cluster.world.network.cut(one, other)
        self._later_heal((one, other))

    async def slow_link(self) -> None:
        one, other = self._random.sample(list(self._cluster.world.network.nodes), 2)
        self._cluster.world.network.slow(one, other, self._random.choice((1, 10, 300)))

    async def reset(self) -> None:
        one, other = self._random.sample(list(self._cluster.world.network.nodes), 2)
        self._cluster.world.network.reset(one, other)

    async def stall_link(self) -> None:
        one, other = self._random.sample(list(self._cluster.world.network.nodes), 2)
        self._cluster.world.network.stall(one, other, int(self._random.random() * 4 * SECOND_NS))

    # Disks and clocks

    async def slow_disk(self) -> None:
        node = self._any()
        if node is not None:
            node.host.disk.faults.slow_factor = self._random.choice((1, 10, 100))

    async def stall_disk(self) -> None:
        node = self._any()
        if node is not None:
            node.host.disk.faults.write_stall_ns = 2 * SECOND_NS
            await asyncio.sleep(0.2 + self._random.random())
            node.host.disk.faults.write_stall_ns = 0

    async def disk_error(self) -> None:
        """A broker on a disk that refused something may have lost what it had not flushed, and counts as one that
        did."""
        node = self._any()
        if node is None or not self._may_lose_cache(node):
            return
        disk = node.host.disk
        operation = self._random.choice((Operation.SYNC, Operation.WRITE, Operation.NAME))
        call = disk.counts[operation] + self._random.randint(1, 20)
        disk.fail(operation, call)
        if self._plan.flushes:
            return
        epoch, life = epoch_of(node), node.host.life
        for _ in range(20):
            await asyncio.sleep(0.05)
            if not self._may_lose_cache(node):
                break
        disk.forgive(operation, call)
        if node.host.life is not life or self._is_impaired(node):
            await self._until_not_counted_on(node, epoch)

    async def lose_directory(self) -> None:
        """One of several; it may come back with what it had at the next start."""
        node = self._any()
        if node is None or node.broker is None or not self._may_lose_cache(node):
            return
        disk, epoch, life = node.host.disk, epoch_of(node), node.host.life
        path = self._random.choice((DIRECTORIES[0], *DIRECTORIES[1 : self._plan.directories] * 4))
        kept = [(each.topic, each.index) for each in node.broker.replicas if each.log.directory.startswith(f"{path}/")]
        disk.break_directory(path)
        for _ in range(20):
            await asyncio.sleep(0.05)
            if node.host.life is not life or self._is_impaired(node):
                await self._until_not_counted_on(node, epoch, kept)
                return
            if not self._may_lose_cache(node):
                break
        disk.mend_directories()

    async def full_disk(self) -> None:
        node = self._any()
        if node is not None:
            disk = node.host.disk
            disk.faults.capacity_bytes = disk.used_bytes + self._random.randint(0, 2000)
            await asyncio.sleep(self._random.random() * 4)
            disk.faults.capacity_bytes = DiskFaults().capacity_bytes

    async def bit_rot(self) -> None:
        node = self._rotting or self._any()
        if node is None or node.broker is None or not node.is_up:
            return
        places = [
            place
            for partition in node.broker.replicas
            if self._is_whole(partition.topic, partition.index)
            and not node.host.disk.is_rotten(partition.log.directory)
            for place in durable_batches(node.host.disk, partition.log)
        ]
        if places:
            self._rotting = node
            path, position, size = self._random.choice(places)
            node.host.disk.flip_bit(path, position + self._random.choice([*LENGTH_BYTES, *range(CRC_BEGINS, size)]))

    def _is_whole(self, topic: str, index: int) -> bool:
        """Whether everybody who knows says that all replicas are in sync."""
        known = [node.broker.image.topics.partition(topic, index) for node in self._up() if node.broker is not None]
        return len(known) == len(self._cluster.nodes) and all(
            each is not None and len(each.isr) == len(each.replicas) > 1 for each in known
        )

    async def wall_jump(self) -> None:
        node = self._any()
        if node is not None and self._plan.skew_ms_max:
            node.host.wall_skew_ms = self._random.randint(-self._plan.skew_ms_max, self._plan.skew_ms_max)

    # What an administrator does meanwhile

    def _ask_soon(self, *requests: tuple[object, int], of: ClusterNode | None = None) -> None:
        """Of any node that is up, one after the other; what comes of it the cluster shows."""
        node = of or self._any()
        if node is None:
            return

        async def ask() -> None:
            with suppress(OSError, TimeoutError, Closed):
                client = await self._cluster.connect(node.id)
                try:
                    for request, version in requests:
                        await asyncio.wait_for(client.ask(request, version), ADMIN_S)
                finally:
                    client.close()

        self._asking = [task for task in self._asking if not task.done()]
        self._asking.append(asyncio.get_running_loop().create_task(ask()))

    def _some_partition(self) -> tuple[str, int, tuple[int, ...]] | None:
        """Topic, index, replicas, as some node sees them."""
        node = self._any()
        image = node.broker.image if node is not None and node.broker is not None else None
        if image is None:
            return None
        found = [(topic.name, index, each.replicas) for topic, index, each in image.topics.partitions()]
        return self._random.choice(found) if found else None

    def _reassignment(self, topic: str, index: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
        asked = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        return AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[asked])

    async def move_leaders(self) -> None:
        """Others become the preferred leaders, and lead: nobody has failed."""
        found = self._some_partition()
        if found is not None:
            topic, index, replicas = found
            others = [*replicas[1:], replicas[0]]
            elect = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=3000)
            self._ask_soon((self._reassignment(topic, index, others), 0), (elect, 2))

    async def reassign(self) -> None:
        """To other nodes, or back, before the last move is over perhaps."""
        found = self._some_partition()
        if found is not None:
            topic, index, replicas = found
            target = self._random.sample(list(self._cluster.nodes), min(len(replicas), len(self._cluster.nodes)))
            is_given_up = self._random.random() < 0.2
            self._ask_soon((self._reassignment(topic, index, None if is_given_up else target), 0))

    async def change_voters(self) -> None:
        """Add who does not vote, remove who does, but for the last two."""
        leader = self._cluster.leader_of_quorum()
        if leader is None or leader.broker is None or not self._plan.names_voters:
            return
        voters = leader.broker.quorum.opened.history.voters
        asked = None if leader.broker.config.is_broker else leader  # a broker passes it on, a controller does not
        outside = [each for each in self._cluster.nodes if each not in voters.by_id]
        if outside and (len(voters.by_id) < 3 or self._random.random() < 0.5):
            voter = voter_of(self._random.choice(outside))
            listeners = [Listener(name=name, host=host, port=port) for name, (host, port) in voter.endpoints]
            add = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=3000,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                listeners=listeners,
            )
            self._ask_soon((add, 1), of=asked)
        elif len(voters.by_id) > 2:
            voter = self._random.choice(list(voters.by_id.values()))
            remove = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=voter.id, voter_directory_id=voter.directory_id
            )
            self._ask_soon((remove, 0), of=asked)

    async def move_transaction_version(self) -> None:
        """Up or down, with transactions open. Producers keep to the protocol that they began with, as clients do."""
        image = self._newest_image()
        if image is None:
            return
        level = image.features.levels.get(TRANSACTION_VERSION, 0)
        target = self._random.choice([each for each in range(3) if each != level])
        kind = UpgradeType.UPGRADE if target > level else UpgradeType.SAFE_DOWNGRADE
        update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=target, upgrade_type=kind)
        self._ask_soon((UpdateFeaturesRequest(feature_updates=[update], timeout_ms=3000), 2))


def _is_in_sync(image: MetadataImage, node_id: int, topic: str, index: int) -> bool:
    assigned = image.topics.partition(topic, index)
    return assigned is not None and node_id in assigned.isr


def epoch_of(node: ClusterNode) -> int:
    """Under which a node is known that has registered, else -1."""
    registration = getattr(node.broker, "registration", None)
    return -1 if registration is None else int(registration.epoch)


def durable_batches(disk: SimulatedDisk, log: Log) -> Iterator[tuple[str, int, int]]:
    """(path, position, size) of the batches that a start must not cut: those below the recovery point on the disk."""
    directory = log.directory.rpartition("/")[0]
    checkpoint = bytes(disk.peek_durable(f"{directory}/{RECOVERY_POINT_CHECKPOINT}"))
    recovery_point = decode_offsets(checkpoint, directory).get((log.topic, log.partition), 0)
    for segment in log.segments:
        path = segment.path(".log")
        if segment.base_offset < recovery_point and disk.has_durable_name(path):
            for position, header in iterate_batches(bytes(disk.peek_durable(path))):
                if header.next_offset <= recovery_point:
                    yield path, position, header.size
                if header.next_offset >= recovery_point:
                    break  # what lies beyond was not synced, and may be anything
