"""The log eraser without a cluster: a log that is led, a copy that follows it and is away for long, and erase orders
that come one by one or several at once, also while others are carried out. The process is killed, or loses its power at
any step.

untouched   each batch is the one that was appended, but for records that an order names
erased      at the end, what the orders name is gone from both logs
receipts    of each order: the records that it named first, and no others; the copy may have fetched a batch without
            them. From entry to entry the checksum of a segment goes on, up to that of its file
orders      a start finds each committed order that is not carried out, and hides what it names
producers   epochs, sequences, open and aborted transactions are those that were appended
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from random import Random
from typing import Final

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.erase_orders import runs_of
from moldau.protocol.primitives import crc32c
from moldau.replication.partition import Partition
from moldau.storage.erasure.receipts import read_or_new_receipt
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.simulation.compaction.host import Process
from tests.simulation.compaction.rules import Violation
from tests.unit.storage.compaction.histories import Stored, end_transaction, send, stored
from tests.unit.storage.erasure.orders import runs_from, send_order

LIMIT_S: Final = 300.0
PLAIN: Final = -1
IDEMPOTENT: Final = (1, 2)
TRANSACTIONAL: Final = (11, 12)
CUT_STEPS: Final = 90
"""A power cut comes within so many steps of the disk."""
SETTLE_S_MAX: Final = 120.0
FETCH_SIZE: Final = 400
LOOK_EVERY: Final = 4
"""After so many acts it is checked what is hidden."""
LEFTOVERS: Final = (".cleaned", ".swap", ".deleted")


class End(Enum):
    """How a process ends."""

    KILL = "kill"
    CUT = "loss of power at a step of the disk"
    STOP = "clean stop"


@dataclass(slots=True)
class Producer:
    """What the log must know of a producer."""

    last_sequence: int = -1
    opened: int | None = None
    """The first offset of its open transaction."""


@dataclass(slots=True)
class Model:
    """What was appended to the led log, and what was ordered. A loss of power cuts the end that was not committed."""

    batches: list[Stored] = field(default_factory=list)
    orders: dict[int, set[int]] = field(default_factory=dict)
    """By the offset of an order: the offsets that it names."""
    committed_end: int = 0

    def cut(self, end_offset: int) -> None:
        self.batches = [each for each in self.batches if each.header.base_offset < end_offset]
        self.orders = {offset: named for offset, named in self.orders.items() if offset < end_offset}

    @property
    def data_offsets(self) -> set[int]:
        """Those of records that can be erased."""
        return {record.offset for each in self.batches if not each.header.is_control for record in each.records}

    def share(self, offset: int) -> set[int]:
        """What the order at an offset erases: what it names, and no older order does."""
        older = (named for at, named in self.orders.items() if at < offset)
        return (self.orders[offset] & self.data_offsets).difference(*older)


class Swarm:
    """One seed. `run` raises `Violation`, as the cause of a `SimulationFailed` too."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed}/log eraser")
        self._waits = Random(f"{seed}/waits")
        self.world = World(seed)
        self.host = self.world.add_host("broker-1")
        self.model = Model()
        self.ends = self.random.choices(list(End), weights=(3, 5, 1), k=self.random.randint(1, 3))
        self.config = LogConfig(
            segment_bytes=self.random.choice((400, 900, 3000)),
            index_interval_bytes=self.random.choice((1, 150)),
            file_delete_delay_ms=100,
        )
        self.properties = {"log.cleaner.io.buffer.size": str(self.random.choice((40, 400, 1 << 19)))}
        self.count = self.looks = 0
        self._hiding: dict[Log, set[int]] = {}
        """The orders that the start of a log has found."""
        self._is_stopping = self._is_last = self._has_ended = False
        self._acts: list[tuple[float, Callable[[Process], Awaitable[None] | None]]] = [
            (10, self._append),
            (3, self._end_transaction),
            (0.5, self._roll),
            (5, self._advance),
            (self.random.choice((0, 0.5, 4)), self._fetch),
            (0.5, Process.checkpoint),
            (1, lambda process: process.flush(process.led.log)),
            (self.random.choice((0.5, 2)), self._order),
        ]

    def run(self) -> None:
        with self.world:
            self.world.run(self._drive(), limit_s=LIMIT_S)

    # The driver, outside of the process

    async def _drive(self) -> None:
        for end in self.ends:
            self.host.boot(self._live)
            self._is_stopping = False
            await asyncio.sleep(self.random.random() * 3)
            if end is End.STOP:
                self._is_stopping = True
            elif end is End.CUT:
                self.host.disk.crash_at_step = self.host.disk.steps + self.random.randint(1, CUT_STEPS)
            await self._until_down(3.0 if end is End.CUT else 60.0 if end is End.STOP else 0)
            if self.host.is_up:
                (self.host.kill if end is End.KILL else self.host.crash)()
            self.host.disk.crash_at_step = None
        self._is_last, self._is_stopping = True, False
        self.host.boot(self._live)
        await self._until_down(LIMIT_S)
        assert self._has_ended

    async def _until_down(self, patience_s: float) -> None:
        for _ in range(int(patience_s / 0.05)):
            if not self.host.is_up:
                return
            await asyncio.sleep(0.05)

    # The process

    async def _live(self, environment: SimulatedEnvironment) -> None:
        process = Process(environment, self.config, self.properties, self._waits)
        self._hiding.clear()
        await self._recovered(process)
        process.cleaner.begin()
        number, acts = 0, self.random.randint(5, 15) if self._is_last else 1 << 30
        while not self._is_stopping and number < acts:
            number += 1
            (_, act), *_ = self.random.choices(self._acts, [weight for weight, _ in self._acts])
            if (doing := act(process)) is not None:
                await doing
            self.model.committed_end = max(self.model.committed_end, process.led.high_watermark)
            if number % LOOK_EVERY == 0:
                for each in process.partitions:
                    self._check_hidden(each.log)
            await asyncio.sleep(self.random.random() * (0.8 if self.random.random() < 0.1 else 0.05))
        if self._is_last:
            await self._settle(process)
            self._has_ended = True
        await process.stop()

    async def _recovered(self, process: Process) -> None:
        """What a start must find; the other replicas then give back what they have acknowledged."""
        led, copy = process.partitions
        now_ms = process.environment.wall_ms()
        for each in process.partitions:
            names = process.environment.fs.list_directory(each.log.directory)
            if left := [name for name in names if name.endswith(LEFTOVERS)]:
                raise Violation(f"the start has left {left}")
            self._look(process, each, is_started=True)
        for batch in self.model.batches:
            if led.log.end_offset <= batch.header.base_offset < self.model.committed_end:
                result = led.log.append_as_follower(batch.data, 0, now_ms)
                assert result.error == 0, result
        self.model.cut(led.log.end_offset)
        self._note_unanswered(led.log)
        if copy.log.end_offset > led.log.end_offset:
            await process.truncate(copy, led.log.end_offset)
        led.apply_leader_high_watermark(self.model.committed_end)
        for each in process.partitions:
            each.log.note_change()

    async def _settle(self, process: Process) -> None:
        """Nothing fails any more: all orders are carried out."""
        self._order(process)
        for each in process.partitions:
            while each.log.end_offset < process.led.log.end_offset or not self.model.batches:
                await self._fetch(process)
            each.apply_leader_high_watermark(process.led.log.end_offset)
        for _ in range(int(SETTLE_S_MAX / 0.5)):
            if not any(each.log.erase_orders.offsets for each in process.partitions):
                break
            await asyncio.sleep(0.5)
        else:
            raise Violation("an order is not carried out")
        for each in process.partitions:
            self._look(process, each)
            self._check_end(process, each)

    # What is written

    def _append(self, process: Process) -> None:
        random, log, now_ms = self.random, process.led.log, process.environment.wall_ms()
        producer = random.choice((PLAIN, *IDEMPOTENT, *TRANSACTIONAL))
        known = self._producers().get(producer, Producer())
        identity = (-1, -1, -1) if producer == PLAIN else (producer, 0, known.last_sequence + 1)
        pairs = []
        for _ in range(random.randint(1, 4)):
            self.count += 1
            pairs.append((f"key-{self.count}", f"{self.count}" * random.choice((1, 5, 20))))
        send(
            log,
            *pairs,
            producer=identity,
            codec=random.choice(list(Codec)),
            is_transactional=producer in TRANSACTIONAL,
            timestamp=now_ms - random.choice((0, 300)),
            now_ms=now_ms,
        )
        self._note(log)

    def _end_transaction(self, process: Process) -> None:
        opened = [producer for producer, known in self._producers().items() if known.opened is not None]
        if opened:
            commits, now_ms = self.random.random() < 0.5, process.environment.wall_ms()
            end_transaction(process.led.log, self.random.choice(opened), 0, commits=commits, now_ms=now_ms)
            self._note(process.led.log)

    def _roll(self, process: Process) -> None:
        process.led.log.roll(process.environment.wall_ms())

    def _order(self, process: Process) -> None:
        """One order or several, which may name the same offsets."""
        led = process.led
        if self.random.random() < 0.7:
            self._advance(process)
        self.model.committed_end = max(self.model.committed_end, led.high_watermark)
        if not led.high_watermark:
            return
        for _ in range(self.random.choice((1, 1, 2, 3, 5))):
            count = min(led.high_watermark, self.random.choice((1, 3, 12)))
            first = self.random.randrange(led.high_watermark)
            named = set(self.random.sample(range(led.high_watermark), count))
            if self.random.random() < 0.3:
                named = set(range(first, min(first + 3 * count, led.high_watermark)))
            now_ms = process.environment.wall_ms()
            offset = send_order(led.log, runs_from(named), number=led.log.end_offset, now_ms=now_ms)
            self.model.orders[offset] = named
            self._note(led.log)

    def _note(self, log: Log) -> None:
        """Note the last batch as it is stored."""
        known_end = self.model.batches[-1].header.next_offset if self.model.batches else 0
        self.model.batches += [each for each in stored_from(log, known_end) if each.header.base_offset >= known_end]

    def _note_unanswered(self, log: Log) -> None:
        """Note batches that the log has kept, although the power went away before they were noted."""
        known_end = self.model.batches[-1].header.next_offset if self.model.batches else 0
        self._note(log)
        for header, _, _ in self.model.batches:
            order = erase_order_at(log.segments, header.base_offset) if header.base_offset >= known_end else None
            if order is not None:
                named = {offset for run in runs_of(order) for offset in range(run.first, run.last + 1)}
                self.model.orders[header.base_offset] = named

    def _advance(self, process: Process) -> None:
        process.led.apply_leader_high_watermark(process.led.log.end_offset)

    async def _fetch(self, process: Process) -> None:
        """The copy takes committed batches."""
        for _ in range(self.random.randint(1, 8)):
            if process.copy.log.end_offset < process.led.high_watermark:
                await process.fetch(FETCH_SIZE)

    def _producers(self) -> dict[int, Producer]:
        """What the batches of the model say."""
        found: dict[int, Producer] = {}
        for header, _, _ in self.model.batches:
            if header.producer_id < 0:
                continue
            known = found.setdefault(header.producer_id, Producer())
            if header.is_control:
                known.opened = None
                continue
            known.last_sequence = header.base_sequence + header.last_offset_delta
            if header.is_transactional and known.opened is None:
                known.opened = header.base_offset
        return found

    def _aborted(self) -> list[tuple[int, int]]:
        """The producer and the first offset of each aborted transaction."""
        opened: dict[int, int] = {}
        aborted = []
        for header, records, _ in self.model.batches:
            if header.is_control and header.producer_id >= 0:
                first_offset = opened.pop(header.producer_id)
                if control_record_type(records[0].key) is ControlRecordType.ABORT:
                    aborted.append((header.producer_id, first_offset))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return aborted

    # Rules

    def _look(self, process: Process, partition: Partition, *, is_started: bool = False) -> None:
        self.looks += 1
        log, model = partition.log, self.model
        known = {each.header.base_offset: each for each in model.batches}
        named = set[int]().union(*model.orders.values())
        for header, records, data in stored(log):
            old = known.get(header.base_offset)
            if old is None:
                if header.base_offset < model.committed_end:
                    raise Violation(f"no batch was appended at {header.base_offset}")
                continue
            left = [each for each in old.records if each in records]
            if left != records or not {each.offset for each in old.records} - {each.offset for each in left} <= named:
                raise Violation(f"the batch at {header.base_offset} has {records} of {old.records}, named: {named}")
            if len(left) == len(old.records) and data != old.data:
                raise Violation(f"the batch at {header.base_offset} was written anew for nothing")
        if is_started:
            self._check_orders_found(process, log)

    def _check_orders_found(self, process: Process, log: Log) -> None:
        for offset in self.model.orders:
            order = erase_order_at(log.segments, offset) if offset < log.end_offset else None
            if (
                order is None
                or read_or_new_receipt(process.environment.fs, log.directory, order, offset).done_ms is not None
            ):
                continue
            if offset not in log.erase_orders.offsets:
                raise Violation(f"the start has not found the order at {offset}")
        self._hiding[log] = set(log.erase_orders.offsets)
        self._check_hidden(log)

    def _check_hidden(self, log: Log) -> None:
        """What the orders name that a start has found is hidden until it is erased."""
        hiding = [offset for offset in log.erase_orders.offsets if offset in self._hiding.get(log, ())]
        if not hiding:
            return
        present = {record.offset for each in stored(log) if not each.header.is_control for record in each.records}
        for offset in hiding:
            named = self.model.orders.get(offset, set())
            if seen := [each for each in named & present if not log.erase_orders.hides_offset_in(each, each + 1)]:
                raise Violation(f"offsets {seen} are not hidden, and the order at {offset} names them")

    def _check_end(self, process: Process, partition: Partition) -> None:
        log, model, fs = partition.log, self.model, process.environment.fs
        if left := [name for name in fs.list_directory(log.directory) if name.endswith(LEFTOVERS)]:
            raise Violation(f"{partition.topic}: {left} may have records that were erased")
        batches = stored(log)
        present = {record.offset for each in batches if not each.header.is_control for record in each.records}
        expected = model.data_offsets.difference(*model.orders.values())
        if present != expected or [each.header.base_offset for each in batches] != [
            each.header.base_offset for each in model.batches
        ]:
            raise Violation(f"{partition.topic}: {sorted(present ^ expected)} should be there, or gone")
        entries: dict[int, list[tuple[str, str]]] = {}
        for offset in sorted(model.orders):
            order = erase_order_at(log.segments, offset)
            assert order is not None
            receipt = read_or_new_receipt(fs, log.directory, order, offset)
            erased = {each for entry in receipt.segments for run in entry.erased for each in range(run[0], run[1] + 1)}
            share = model.share(offset)
            is_exact = erased == share if partition is process.led else erased <= share
            if receipt.done_ms is None or not is_exact or receipt.records_erased != len(erased):
                raise Violation(f"{partition.topic}: the order at {offset} erased {erased}, not {share}")
            for entry in receipt.segments:
                entries.setdefault(entry.base_offset, []).append((entry.crc_before, entry.crc_after))
        for base_offset, sums in entries.items():
            self._check_sums(fs.read(f"{log.directory}/{offset_name(base_offset, LOG_SUFFIX)}"), sums)
        self._check_producers(log)

    def _check_sums(self, data: bytes, sums: list[tuple[str, str]]) -> None:
        for (_, after), (before, next_after) in pairwise(sums):
            if before != after and next_after != after:
                raise Violation(f"the checksums of a segment are not those of one history: {sums}")
        if sums[-1][1] != f"{crc32c(data, 0):08x}":
            raise Violation(f"the file has another checksum than the last of {sums}")

    def _check_producers(self, log: Log) -> None:
        expected = self._producers()
        aborted = sorted((each.producer_id, each.first_offset) for each in log.aborted_transactions(0, log.end_offset))
        if aborted != sorted(self._aborted()):
            raise Violation(f"the aborted transactions are {aborted}, not {sorted(self._aborted())}")
        for producer_id, known in expected.items():
            entry = log.producers.entries.get(producer_id)
            if entry is None or entry.last_sequence != known.last_sequence:
                raise Violation(f"producer {producer_id} is known as {entry}, not {known}")
            if (known.opened if known.opened is not None else -1) != entry.open_transaction_offset:
                raise Violation(f"producer {producer_id} has the transaction {entry.open_transaction_offset} open")


def stored_from(log: Log, offset: int) -> list[Stored]:
    return [each for each in stored(log) if each.header.base_offset >= offset]
