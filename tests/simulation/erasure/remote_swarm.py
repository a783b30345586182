"""Erase orders in the remote storage of one partition, without a cluster: its broker leads it or follows another one in
turn, copies segments, deletes what is local and copied, erases, and is killed. Storage and metadata topic fail now and
then, and readers pin segments.

untouched    each batch that is read in remote storage is one that was appended, but for records that an order names;
             no other record is gone from both tiers
transactions a segment with the marker of an aborted transaction has a transaction index
waiting      while a segment that is read has a record of an order, the order itself is in no segment that is read
pinned       no object goes that a reader has pinned
receipts     if one says that an order is carried out in remote storage, no object there has a record of it
erased       at the end, what the orders name is in no file of the log and in no object
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.erase_orders import erase_order_batch, new_erase_order
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.erasure.receipts import read_or_new_receipt
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import LogConfig
from moldau.storage.tiered.layout import ObjectKind, object_key, parse_key
from moldau.storage.tiered.pins import Pin, pin_key
from moldau.testing.simulation.storage import StorageFaults
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.simulation.compaction.rules import Violation
from tests.simulation.erasure.remote_host import NODE_ID, RemoteProcess, RemoteSide
from tests.support.cluster import CLUSTER_ID
from tests.unit.storage.compaction.histories import stored
from tests.unit.storage.erasure.orders import PREDICATE_HASH, runs_from

LIMIT_S: Final = 900.0
OTHER_ID: Final = 2
"""The broker that leads while this one follows."""
PLAIN: Final = -1
TRANSACTIONAL: Final = (11, 12)
LIFE_S_MAX: Final = 20.0
LOOK_EVERY: Final = 3
SETTLE_S_MAX: Final = 400.0
ROUND_S: Final = 0.5
PIN_MS_MAX: Final = 20_000


class Swarm:
    """One seed. `run` raises `Violation`, as the cause of a `SimulationFailed` too."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(f"{seed}/remote eraser")
        self.world = World(seed)
        self.host = self.world.add_host("broker-1")
        faults = StorageFaults(refuses=0.03, loses_answer=0.02, timeout_s=0.5) if random.random() < 0.3 else None
        self.remote = RemoteSide(Random(f"{seed}/remote side"), faults or StorageFaults())
        self.config = LogConfig(
            segment_bytes=random.choice((400, 800)),
            index_interval_bytes=100,
            is_tiered=True,
            retention_ms=-1,
            local_retention_ms=-1,
            local_retention_bytes=random.choice((0, 600)),
            file_delete_delay_ms=100,
        )
        self.batches: dict[int, list[Record]] = {}
        """The records of each batch that was appended, by its base offset. Control batches have none."""
        self.orders: dict[int, set[int]] = {}
        """By the offset of an order: the offsets that it names."""
        self.looks = self.terms = 0
        self._epoch = 0
        self._count = 0
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()
        self._aborts: set[int] = set()
        """The offsets of the markers of aborted transactions."""
        self._pins: list[tuple[int, str, str]] = []
        """When each pin ends (ms), its key, and the key of the object that it holds."""
        self._has_ended = False
        self._acts: list[tuple[float, Callable[[RemoteProcess], Awaitable[None] | None]]] = [
            (10, self._append),
            (2, self._end_transaction),
            (1, lambda process: process.retain(process.led)),
            (random.choice((0.3, 1.5)), self._change_role),
            (random.choice((0.2, 0.5)), self._order),
            (random.choice((0, 3)), self._pin),
            (1, lambda process: process.flush(process.led.log)),
        ]

    def run(self) -> None:
        with self.world:
            self.world.run(self._drive(), limit_s=LIMIT_S)

    async def _drive(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.host.boot(self._live)
            await asyncio.sleep(self.random.random() * LIFE_S_MAX)
            self.host.kill()
        self.host.boot(self._live_to_the_end)
        while self.host.is_up:
            await asyncio.sleep(ROUND_S)
        assert self._has_ended

    # The process

    async def _begin(self, environment: SimulatedEnvironment) -> RemoteProcess:
        process = RemoteProcess(environment, self.config, {}, Random(self.random.random()), self.remote)
        self._change_role(process)
        process.cleaner.begin()
        return process

    async def _live(self, environment: SimulatedEnvironment) -> None:
        await self._act(await self._begin(environment), 1 << 30)

    async def _live_to_the_end(self, environment: SimulatedEnvironment) -> None:
        process = await self._begin(environment)
        await self._act(process, self.random.randint(5, 15))
        await self._settle(process)
        self._has_ended = True
        await process.stop()

    async def _act(self, process: RemoteProcess, acts: int) -> None:
        process.tasks.spawn(self._rounds(process), "rounds")
        for number in range(acts):
            (_, act), *_ = self.random.choices(self._acts, [weight for weight, _ in self._acts])
            if (doing := act(process)) is not None:
                await doing
            if number % LOOK_EVERY == 0:
                self._look(process)
            await asyncio.sleep(self.random.random() * (1.0 if self.random.random() < 0.2 else 0.1))

    async def _rounds(self, process: RemoteProcess) -> None:
        while True:
            process.look_at_remote()
            await asyncio.sleep(ROUND_S)

    async def _settle(self, process: RemoteProcess) -> None:
        """Nothing fails any more, this broker leads, and no reader pins a segment."""
        self.remote.faults.refuses = self.remote.faults.loses_answer = 0.0
        for _, key, _ in self._pins:
            self.remote.bucket.objects.pop(key, None)
        self._pins.clear()
        while not process.led.is_leader:
            self._change_role(process)
        for producer in sorted(self._open):
            self._end(process, producer, commits=True)
        self._order(process)
        log = process.led.log
        for _ in range(int(SETTLE_S_MAX / ROUND_S)):
            self._look(process)
            if not log.erase_orders.offsets and not log.erase_orders.tiered and not self._objects_with_named():
                break
            await asyncio.sleep(ROUND_S)
        else:
            left = log.erase_orders.offsets, log.erase_orders.tiered, self._objects_with_named()
            raise Violation(f"orders are not carried out: pending, locally done, objects: {left}")
        left_here = {each for each in self._local(process) if each in self._named}
        if left_here:
            raise Violation(f"the log still has {sorted(left_here)}")

    # What is written

    def _write(self, process: RemoteProcess, data: bytes, records: list[Record]) -> int:
        """Append a batch as the leader, or as the leader that this broker follows. Returns its offset."""
        led, now_ms = process.led, process.environment.wall_ms()
        base_offset = led.log.end_offset
        if led.is_leader:
            origin = AppendOrigin.COORDINATOR
            result = led.log.append_as_leader(bytearray(data), led.leader_epoch, now_ms, origin=origin)
            led.advance_high_watermark()
        else:
            sent = base_offset.to_bytes(8, "big") + data[8:12] + self._epoch.to_bytes(4, "big") + data[16:]
            result = led.log.append_as_follower(sent, self._epoch, now_ms)
            led.apply_leader_high_watermark(led.log.end_offset)
        assert result.error == 0, result
        self.batches[base_offset] = [each._replace(offset=base_offset + number) for number, each in enumerate(records)]
        return base_offset

    def _append(self, process: RemoteProcess) -> None:
        random, now_ms = self.random, process.environment.wall_ms()
        producer = random.choice((PLAIN, *TRANSACTIONAL))
        records = []
        for _ in range(random.randint(1, 4)):
            self._count += 1
            records.append(Record(b"key-%d" % self._count, b"%d" % self._count * random.choice((1, 5, 20)), now_ms))
        codec, is_transactional = random.choice((Codec.NONE, Codec.GZIP)), producer in TRANSACTIONAL
        sequence = self._sequences.get(producer, 0)
        data = (
            build_batch(
                records,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            if is_transactional
            else build_batch(records, codec=codec)
        )
        if is_transactional:
            self._sequences[producer] = sequence + len(records)
            self._open.add(producer)
        self._write(process, data, records)

    def _end_transaction(self, process: RemoteProcess) -> None:
        if self._open:
            self._end(process, self.random.choice(sorted(self._open)), commits=self.random.random() < 0.5)

    def _end(self, process: RemoteProcess, producer: int, *, commits: bool) -> None:
        marker = end_transaction_marker(
            commits=commits,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp=process.environment.wall_ms(),
        )
        offset = self._write(process, bytes(marker), [])
        self._open.discard(producer)
        if not commits:
            self._aborts.add(offset)

    def _order(self, process: RemoteProcess) -> None:
        """One order or several, some of whose offsets are deep in remote storage."""
        end = process.led.log.end_offset
        if not end:
            return
        for _ in range(self.random.choice((1, 1, 2, 3))):
            named = set(self.random.sample(range(end), min(end, self.random.choice((1, 3, 10)))))
            order = new_erase_order(process.led.log.end_offset.to_bytes(16, "big"), PREDICATE_HASH, runs_from(named))
            offset = self._write(process, erase_order_batch(order, process.environment.wall_ms()), [])
            self.orders[offset] = named

    def _change_role(self, process: RemoteProcess) -> None:
        """Another leader is elected: this broker, or the other one."""
        self._epoch += 1
        if process.led.is_leader:
            process.led.become_follower(OTHER_ID, self._epoch)
        else:
            self.terms += 1
            process.led.become_leader(NODE_ID, self._epoch, (NODE_ID,))

    def _pin(self, process: RemoteProcess) -> None:
        """A reader pins the segments that are read: one of them, or all."""
        readable = process.followed.remote_log.read_segments()
        if readable:
            chosen = self.random.choice((readable, [self.random.choice(readable)]))
            now_ms = process.environment.wall_ms()
            ends_ms = now_ms + self.random.randint(1, PIN_MS_MAX)
            key, partition = pin_key(process.followed.key, f"reader-{len(self._pins)}"), process.followed.key
            pin = Pin(CLUSTER_ID, partition, tuple(each.segment_id for each in chosen), now_ms, ends_ms)
            self.remote.bucket.store(key, pin.encode())
            for segment in chosen:
                held = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LOG)
                self._pins.append((ends_ms, key, held))

    # Rules

    @property
    def _named(self) -> set[int]:
        """The offsets of the records that the orders name."""
        data = {record.offset for records in self.batches.values() for record in records}
        return data.intersection(set[int]().union(*self.orders.values()))

    def _local(self, process: RemoteProcess) -> set[int]:
        return {
            record.offset for each in stored(process.led.log) if not each.header.is_control for record in each.records
        }

    def _objects(self) -> Iterator[tuple[str, set[int]]]:
        """Each .log object with the offsets of its records."""
        for key, stored_object in self.remote.bucket.objects.items():
            parsed = parse_key(key)
            if parsed is not None and parsed.kind is ObjectKind.LOG:
                yield key, {record.offset for _, records in batches_of(stored_object.data) for record in records}

    def _objects_with_named(self) -> list[str]:
        named = self._named
        return [key for key, offsets in self._objects() if offsets & named]

    def _look(self, process: RemoteProcess) -> None:
        self.looks += 1
        there = self._check_segments(process)
        data = {record.offset for records in self.batches.values() for record in records}
        if gone := data - self._named - there - self._local(process):
            raise Violation(f"no order names {sorted(gone)}, which are gone")
        now_ms = process.environment.wall_ms()
        for ends_ms, _, held in self._pins:
            if now_ms < ends_ms and held not in self.remote.bucket.objects:
                raise Violation(f"{held} was deleted while a reader had pinned it")
        self._check_receipts(process)

    def _check_segments(self, process: RemoteProcess) -> set[int]:
        """The offsets of all records that are read in remote storage."""
        named, there, followed = self._named, set[int](), process.followed
        copied_end = followed.end_offset(process.led.log.epochs, process.led.log.end_offset)
        for segment in followed.remote_log.read_segments():
            key = object_key(followed.key, segment.start_offset, segment.segment_id, ObjectKind.LOG)
            if key not in self.remote.bucket.objects:
                raise Violation(f"{key} is read, and not there")
            found = set[int]()
            for base_offset, records in batches_of(self.remote.bucket.objects[key].data):
                known = self.batches.get(base_offset, [])
                lost = [each for each in known if each not in records]
                if any(each not in known for each in records) or any(each.offset not in named for each in lost):
                    raise Violation(f"the batch at offset {base_offset} of {key} has {records} of {known}")
                found |= {each.offset for each in records}
            if not segment.has_transaction_index and any(
                segment.start_offset <= each <= segment.last_offset for each in self._aborts
            ):
                raise Violation(f"{key} has the marker of an aborted transaction, and no transaction index")
            for offset, of_order in self.orders.items():
                if found & of_order and copied_end > offset:
                    raise Violation(f"the order at offset {offset} is copied, and {key} has records that it names")
            there |= found
        return there

    def _check_receipts(self, process: RemoteProcess) -> None:
        log, fs = process.led.log, process.environment.fs
        for offset, named in self.orders.items():
            order = erase_order_at(log.segments, offset)
            if order is None:
                continue
            tier = read_or_new_receipt(fs, log.directory, order, offset).tier
            if tier is not None and tier.done_ms is not None:
                for key, offsets in self._objects():
                    if left := offsets & named:
                        raise Violation(f"the receipt of the order at {offset} is complete, and {key} has {left}")


def batches_of(data: bytes) -> Iterator[tuple[int, list[Record]]]:
    """The base offset and the records of each batch; control batches have none."""
    for place, header in iterate_batches(data):
        yield header.base_offset, [] if header.is_control else list(records_of(data, place, header))
