"""Consumers that wait for records of three replicas, and a rule on how soon they are answered.

Records are committed, and transactions begin and end in the logs of the leaders. Each consumer has one fetch under way,
at the end of what it has read, whose time is long. From the moment at which its leader could answer, it is answered
within `SOON_S`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import parse_header
from moldau.replication.partition import Partition
from moldau.replication.source import HIGH_WATERMARK, TXN_COMMITTED, upper_bound
from tests.simulation.invariants.observation import Violation
from tests.support.cluster import Cluster
from tests.support.node import Client, batch, fetch_request

PARTITIONS: Final = 2
CONSUMERS: Final = 5
ACTS: Final = 60
WAIT_MS: Final = 60_000
SOON_S: Final = 0.05
"""Of the simulated network one round trip takes a few milliseconds; nothing else has to happen."""
LOOK_S: Final = 0.005
PRODUCER_IDS: Final = (9000, 9001, 9002)


@dataclass(slots=True)
class Consumer:
    """`since_s`: from when on its leader could have answered it; None if it cannot."""

    client: Client
    isolation: int
    offsets: dict[int, int]
    """By partition, if it goes on."""
    since_s: float | None = None
    answers: int = 0

    async def work(self) -> None:
        while True:
            wanted = [("t", index, offset) for index, offset in self.offsets.items()]
            request = fetch_request(wanted, max_wait_ms=WAIT_MS, isolation_level=self.isolation)
            reply = await self.client.ask(request, 11)
            self.answers += 1
            self.since_s = None
            for data in reply.responses[0].partitions if reply.responses else ():
                assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
                records = bytes(data.records or b"")
                position = 0
                while position < len(records):
                    header = parse_header(records[position:])
                    position += header.size
                    self.offsets[data.partition_index] = header.next_offset


class Waiting:
    """One seed, with all leaders on one node."""

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self._random = Random(f"{seed}/waiting")
        self._cluster = cluster
        self._partitions: list[Partition] = []
        self._sequences: dict[tuple[int, int], int] = {}
        """By partition and producer id, of open transactions: the next sequence."""
        self._ended: dict[tuple[int, int], int] = {}
        self.consumers: list[Consumer] = []

    async def live(self, cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", PARTITIONS, retention_ms=-1)
        loop, random = asyncio.get_running_loop(), self._random
        leaders = [await cluster.led("t", index) for index in range(PARTITIONS)]
        for index, node_id in enumerate(leaders):
            broker = cluster.nodes[node_id].broker
            assert broker is not None
            found = broker.replicas.get("t", index)
            assert found is not None
            self._partitions.append(found)
        for _ in range(CONSUMERS):
            node_id = random.choice(leaders)
            served = [index for index in range(PARTITIONS) if leaders[index] == node_id]
            indexes = random.sample(served, random.randint(1, len(served)))
            isolation = random.choice((0, 1, 1))
            self.consumers.append(Consumer(await cluster.connect(node_id), isolation, dict.fromkeys(indexes, 0)))
        working = [loop.create_task(each.work()) for each in self.consumers]
        for _ in range(ACTS):
            self._act()
            await self._look_for(random.choice((0.005, 0.02, 0.2)))
        await self._look_for(1.0)
        for each in working:
            if each.done():
                each.result()
            each.cancel()

    def _act(self) -> None:
        """One append to the log of a leader, as a producer or a transaction coordinator would cause it."""
        index = self._random.randrange(PARTITIONS)
        partition, producer_id = self._partitions[index], self._random.choice(PRODUCER_IDS)
        now_ms = self._cluster.nodes[1].host.wall_ms()
        opened = (index, producer_id) in self._sequences
        drawn = self._random.random()
        if drawn < 0.35:
            result = partition.append_internal(batch("plain"), now_ms)
        elif opened:
            del self._sequences[index, producer_id]
            result = partition.end_transaction(
                producer_id, 0, now_ms, is_commit=self._random.random() < 0.5, coordinator_epoch=0
            )
        else:
            sequence = self._sequences.get((index, producer_id), self._ended.get((index, producer_id), 0))
            self._sequences[index, producer_id] = self._ended[index, producer_id] = sequence + 1
            records = batch(
                "x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
            )
            result = partition.append_internal(records, now_ms)
        assert result.error is ErrorCode.NONE, result

    async def _look_for(self, seconds: float) -> None:
        end_s = self._cluster.world.now_s + seconds
        while self._cluster.world.now_s < end_s:
            await asyncio.sleep(LOOK_S)
            for each in self.consumers:
                self._look_at(each)

    def _look_at(self, consumer: Consumer) -> None:
        now_s, isolation = self._cluster.world.now_s, TXN_COMMITTED if consumer.isolation else HIGH_WATERMARK
        bounds = {index: upper_bound(self._partitions[index], isolation) for index in consumer.offsets}
        if all(bounds[index] <= offset for index, offset in consumer.offsets.items()):
            consumer.since_s = None
            return
        if consumer.since_s is None:
            consumer.since_s = now_s
        elif now_s - consumer.since_s > SOON_S:
            name = "a read_committed fetch" if consumer.isolation else "a fetch"
            late_ms = round(1000 * (now_s - consumer.since_s))
            raise Violation(f"{name} at {consumer.offsets} waits for {late_ms} ms, and may read up to {bounds}")


def run_seed(seed: int) -> Waiting:
    """Raises `Violation`."""
    with Cluster(seed, nodes=3) as cluster:
        waiting = Waiting(seed, cluster)
        cluster.live(waiting.live)
    return waiting
