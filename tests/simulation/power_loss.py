"""Idempotent producers against one node whose power, process and disk fail again and again, from one seed.

Every topic has one replica and flush.messages=1: what was acknowledged, under acks=all or acks=1, must survive any loss
of power and any sync that failed, once, in order. A seed draws how many producers, partitions, log directories,
requests in flight and records a batch, which acknowledgements are asked for, and its faults:

    cut      the power goes at some later step of the disk, so also in the middle of a write, of a roll, of a recovery
    dark     the power goes at once
    kill     the process goes, the page cache stays: the next process finds what was never synced
    stop     SIGTERM: the next process believes the files
    error    the disk refuses some later sync or write; pages that a sync did not write are gone. The node halts, or
             serves on from its other log directory until it is started again
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any, Final, cast

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.testing.simulation.disk_calls import Operation
from moldau.testing.simulation.world import World
from tests.support.history import History, Reading, Send
from tests.support.history_check import Anomaly, anomalies, told
from tests.support.node import HOST, PORT, PROPERTIES, Client, Closed, Node, fetch_request, produce_request

TOPIC = "numbers"
LIMIT_S = 900
PATIENCE_S = 5
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Fault(Enum):
    CUT = "cut"
    DARK = "dark"
    KILL = "kill"
    STOP = "stop"
    ERROR = "error"


POWER_FAULTS: Final = (Fault.CUT, Fault.DARK, Fault.KILL, Fault.STOP)
"""Those that are drawn first."""
DIRECTORIES: Final = ("/data", "/more")


@dataclass(frozen=True, slots=True)
class Shape:
    """What one seed makes of the scenario."""

    producers: int
    partitions: int
    in_flight: int
    batch_records_max: int
    faults: tuple[Fault, ...]
    configs: dict[str, str]
    acks: tuple[int, ...] = (-1,)
    """What the producers ask for, drawn for each request."""
    directories: int = 1
    """The metadata log is in the first."""

    @classmethod
    def drawn(cls, random: Random, flush_messages: str) -> Shape:
        configs = {"flush.messages": flush_messages}
        if random.random() < 0.5:
            configs["segment.ms"] = str(random.choice((20, 100, 500)))
        if random.random() < 0.3:
            configs["internal.segment.bytes"] = str(random.choice((300, 1000)))
        count = random.randint(2, 6)
        return cls(
            producers=random.randint(1, 3),
            partitions=random.randint(1, 3),
            in_flight=random.randint(1, 5),
            batch_records_max=random.randint(1, 3),
            faults=tuple(random.choices(POWER_FAULTS, weights=(5, 2, 2, 1), k=count)),
            configs=configs,
        )

    def with_disk_errors(self, random: Random) -> Shape:
        """The same faults and some errors of the disk among them, other acknowledgements and log directories."""
        faults = [*self.faults]
        for _ in range(random.randint(0, 3)):
            faults.insert(random.randint(0, len(faults)), Fault.ERROR)
        acks = random.choice(((-1,), (1,), (-1, 1)))
        return replace(self, faults=tuple(faults), acks=acks, directories=random.randint(1, len(DIRECTORIES)))


@dataclass(slots=True)
class Run:
    """One seed: what was drawn, what was recorded, what was refused that should not have been."""

    seed: int
    shape: Shape
    history: History = field(default_factory=History)
    refusals: list[str] = field(default_factory=list)
    struck: dict[Fault, int] = field(default_factory=lambda: dict.fromkeys(Fault, 0))
    boots: int = 0
    simulated_s: float = 0.0
    digest: str = ""

    def found(self) -> list[Anomaly]:
        return anomalies(self.history)

    def problems(self) -> list[str]:
        return [*self.refusals, *told(self.found())]


@dataclass(slots=True)
class Batch:
    partition: int
    base_sequence: int
    data: bytes
    sends: list[Send]


class Producer:
    """An idempotent one: batches in flight are sent again, in their order, until each is acknowledged."""

    def __init__(self, name: str, node: Node, run: Run, random: Random) -> None:
        self.name = name
        self.is_ending = False
        self._node = node
        self._run = run
        self._random = random
        self._acks = Random(f"{run.seed}/{name}/acks")
        self._incarnation = 0
        self._count = 0
        self._id: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._unacknowledged: deque[Batch] = deque()

    async def work(self) -> None:
        while not (self.is_ending and not self._unacknowledged):
            client = await self._node.connect(client_id=self.name)
            try:
                await self._converse(client)
            except (Closed, TimeoutError):
                await asyncio.sleep(0.05 + self._random.random() * 0.2)
            finally:
                client.close()

    async def _converse(self, client: Client) -> None:
        """On one connection, until it breaks, a refusal makes it necessary to begin again, or all is done."""
        if self._id is None and not await self._begin(client):
            return
        in_flight: deque[Batch] = deque()
        unsent = deque(self._unacknowledged)
        while True:
            while len(in_flight) < self._run.shape.in_flight and (batch := self._next(unsent)) is not None:
                in_flight.append(batch)
                acks = self._acks.choice(self._run.shape.acks)
                client.send(produce_request(TOPIC, batch.data, partition=batch.partition, acks=acks), 9)
            if not in_flight:
                return
            answer = (await within(client.reply())).responses[0].partition_responses[0]
            self._take(in_flight.popleft(), ErrorCode(answer.error_code), answer.base_offset)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                raise Closed
            if self._random.random() < 0.5:
                await asyncio.sleep(self._random.random() * 0.05)
            if self._random.random() < 0.02:
                self._give_up()
                return

    async def _begin(self, client: Client) -> bool:
        """A new incarnation: an id that nobody else has."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await within(client.ask(request, 4))
        if answer.error_code != 0:
            self._refused(ErrorCode(answer.error_code), "a producer id")
            await asyncio.sleep(0.1)
            return False
        self._id = answer.producer_id, answer.producer_epoch
        self._incarnation += 1
        self._sequences.clear()
        return True

    def _next(self, unsent: deque[Batch]) -> Batch | None:
        if unsent:
            return unsent.popleft()
        if self.is_ending:
            return None
        assert self._id is not None
        partition = self._random.randrange(self._run.shape.partitions)
        producer = f"{self.name}.{self._incarnation}"
        values = [
            f"{producer}/{self._count + i}" for i in range(self._random.randint(1, self._run.shape.batch_records_max))
        ]
        self._count += len(values)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = build_batch(
            [Record(value=value.encode(), timestamp=self._node.host.wall_ms()) for value in values],
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        sends = [self._run.history.send(producer, (TOPIC, partition), value) for value in values]
        batch = Batch(partition, sequence, data, sends)
        self._unacknowledged.append(batch)
        return batch

    def _take(self, batch: Batch, error: ErrorCode, base_offset: int) -> None:
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._unacknowledged.remove(batch)
            for i, sent in enumerate(batch.sends):
                sent.acknowledge(base_offset + i if base_offset >= 0 else -1)
        else:
            self._refused(error, f"sequence {batch.base_sequence} of partition {batch.partition}")

    def _refused(self, error: ErrorCode, what: str) -> None:
        """Batches are sent in order and none behind a refused one is: no sequence can be out of order."""
        if error not in RETRIABLE:
            self._run.refusals.append(f"{self.name}.{self._incarnation} was refused {what}: {error.name}")
            self._give_up()

    def _give_up(self) -> None:
        """What is in flight stays in doubt; the next incarnation goes on."""
        self._id = None
        self._unacknowledged.clear()


async def within(answer: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(answer, PATIENCE_S)


async def insist(node: Node, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """On new connections until there is an answer."""
    while True:
        client = await node.connect()
        try:
            return await within(ask(client))
        except (Closed, TimeoutError):
            await asyncio.sleep(0.2)
        finally:
            client.close()


async def create_topic(node: Node, shape: Shape) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in shape.configs.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=shape.partitions, replication_factor=1, configs=configs)
    reply = await insist(node, lambda client: client.ask(CreateTopicsRequest(topics=[topic]), 5))
    assert reply.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), reply


async def follow(node: Node, run: Run, reading: Reading, is_ended: Callable[[], bool]) -> None:
    """Read one partition from its beginning through all faults, until the end is reached and nothing more will come."""
    offset = 0
    client = await node.connect()
    while True:
        may_end = is_ended()
        request = fetch_request([(*reading.key, offset)], max_wait_ms=100, partition_max_bytes=8000)
        try:
            reply = await within(client.ask(request, 11))
        except (Closed, TimeoutError):
            client.close()
            client = await node.connect()
            continue
        data = reply.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            run.refusals.append(f"{reading.reader} read up to offset {offset}, which then was out of range")
            client.close()
            return
        if data.error_code != 0:
            await asyncio.sleep(0.05)
            continue
        stored = cast("bytes", data.records or b"")
        records = [each for place, header in iterate_batches(stored) for each in records_of(stored, place, header)]
        records = [each for each in records if each.offset >= offset]
        for record in records:
            reading.got(record.offset, (record.value or b"").decode())
            offset = record.offset + 1
        if may_end and offset >= data.high_watermark:
            client.close()
            return


async def nemesis(node: Node, run: Run, random: Random) -> None:
    host = node.host
    for fault in run.shape.faults:
        await asyncio.sleep(random.random() * 0.25)
        run.struck[fault] += 1
        if fault is Fault.KILL:
            host.kill()
        elif fault is Fault.STOP:
            node.stop()
            await until_down(node, 60)
        elif fault is Fault.CUT:
            host.disk.crash_at_step = host.disk.steps + random.randint(1, 50)
            await until_down(node, 2)
        elif fault is Fault.ERROR:
            await disk_error(node, random)
        if host.is_up or fault is Fault.DARK:
            host.crash()
        await asyncio.sleep(random.random() * 0.1)
        if random.random() < 0.3:
            run.struck[Fault.CUT] += 1
            host.disk.crash_at_step = host.disk.steps + random.randint(1, 30)  # while it starts, or soon afterwards
            boot(node, run)
            await until_down(node, 2)
            host.disk.crash_at_step = None
        if not host.is_up:
            boot(node, run)
        await until_serving(node)


async def disk_error(node: Node, random: Random) -> None:
    """The disk refuses one call: the node halts, or is impaired for a while, and is then killed or stays for the loss
    of power that follows."""
    disk = node.host.disk
    operation = random.choice((Operation.SYNC, Operation.SYNC, Operation.WRITE))
    call = disk.counts[operation] + random.randint(1, 20)
    disk.fail(operation, call)
    for _ in range(40):
        await asyncio.sleep(0.05)
        if not node.host.is_up or node.broker.logs.offline:
            break
    disk.forgive(operation, call)
    await asyncio.sleep(random.random() * 0.2)
    if node.host.is_up and random.random() < 0.5:
        node.host.kill()


def boot(node: Node, run: Run) -> None:
    run.boots += 1
    node.boot()


async def until_down(node: Node, patience_s: float) -> None:
    for _ in range(int(patience_s / 0.05)):
        if not node.host.is_up:
            return
        await asyncio.sleep(0.05)


async def until_serving(node: Node) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, PORT)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


async def scenario(node: Node, run: Run, random: Random) -> None:
    """Produce and follow while faults strike; then once more darkness, and everything is read back."""
    loop = asyncio.get_running_loop()
    await create_topic(node, run.shape)
    producers = [Producer(f"p{i}", node, run, Random(f"{run.seed}/p{i}")) for i in range(run.shape.producers)]
    working = [loop.create_task(producer.work()) for producer in producers]
    keys = [(TOPIC, partition) for partition in range(run.shape.partitions)]
    is_ended = False
    following = [
        loop.create_task(follow(node, run, run.history.reading(f"tail-{key[1]}", key), lambda: is_ended))
        for key in keys
    ]
    await nemesis(node, run, random)
    await asyncio.sleep(random.random() * 0.2)
    for producer in producers:
        producer.is_ending = True
    for task in working:
        await task
    is_ended = True
    for task in following:
        await task
    node.host.crash()
    boot(node, run)
    for key in keys:
        await follow(node, run, run.history.reading("final", key, is_complete=True), lambda: True)


def run_seed(seed: int, *, flush_messages: str = "1", has_disk_errors: bool = True, keep_trace: bool = False) -> Run:
    """`has_disk_errors` False: as the seed was drawn before there were any."""
    random = Random(f"{seed}/power-loss")
    shape = Shape.drawn(random, flush_messages)
    if has_disk_errors:
        shape = shape.with_disk_errors(Random(f"{seed}/disk-errors"))
    run = Run(seed, shape)
    with World(seed, keep_trace=keep_trace) as world:
        node = Node(world, PROPERTIES | {"log.dirs": ",".join(DIRECTORIES[: shape.directories])})
        node.host.may_halt = Fault.ERROR in shape.faults
        boot(node, run)
        world.run(scenario(node, run, random), limit_s=LIMIT_S)
        run.simulated_s = world.now_s
        run.digest = world.digest()
    return run
