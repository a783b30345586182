"""The log cleaner without a cluster: one seed writes to a log, cleans it and its copy, and ends the process anyhow.

Plain, idempotent and transactional producers write keys and tombstones; some of them pause for long. Meanwhile the logs
are rolled, truncated, emptied, trimmed and copied, the process is killed, loses its power at any step of the disk, or
stops. At last nothing fails any more, and everything that can be cleaned must be clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_batch import NO_SEQUENCE
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import Partition
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.simulation.compaction.host import ROOT, Process
from tests.simulation.compaction.oracle import NO_PRODUCER, Appended, Oracle
from tests.simulation.compaction.readers import Readers
from tests.simulation.compaction.rules import Violation, check, held_by, stored_offsets

LIMIT_S: Final = 300.0
IDEMPOTENT: Final = (1, 2, 3)
TRANSACTIONAL: Final = (11, 12, 13)
LEAP: Final = (1 << 31) - 200
"""Offsets that compaction, long ago, has left out: an index of one segment holds not many more."""
HOPS_MAX: Final = 40
"""Offsets that compaction has left out a while ago."""
LEFTOVERS: Final = (".cleaned", ".swap", ".deleted")
ENTRY_SIZE: Final = 24
FILE_DELAY_MS: Final = 100
SWAP_STEPS: Final = 9
"""Of the disk: the renames of most swaps."""
SWAP_CUTS: Final = 0.5
SWAP_S_MAX: Final = 4.0
"""How long a life waits for a swap in which it loses its power."""
ROUNDS_MAX: Final = 16
"""How many rounds of cleaning it may take until nothing superfluous is left."""
CLEANED_ANEW: Final = 3
CLEAN_S: Final = 60.0
"""How long the cleaner may take until a log is clean, or clean up to a later offset, in a process that nothing
befalls. With an offset map of nine keys, a hundred segments are many rounds."""


class End(Enum):
    """How a process ends."""

    KILL = "kill"
    DARK = "loss of power"
    CUT = "loss of power at a step of the disk"
    STOP = "clean stop"


@dataclass(frozen=True, slots=True)
class Shape:
    """What one seed draws."""

    config: LogConfig
    properties: dict[str, str]
    keys: int
    is_uniform: bool
    """All batches have the same size, so that what comes after a truncation looks like what was there. Most of these
    logs are emptied, and often: a round of the cleaner has to be under way for it to matter."""
    ends: tuple[End, ...]
    acts: int
    """In each life."""
    pause_s: float
    trims: bool
    empties: bool
    leaps: bool
    weights: dict[int, float]
    """How often each producer writes: some write once, and pause."""

    @classmethod
    def drawn(cls, random: Random) -> Shape:
        config = LogConfig(
            segment_bytes=random.choice((500, 700, 1500)),
            index_interval_bytes=random.choice((0, 100, 4096)),
            cleanup_policy=("compact",),
            delete_retention_ms=random.choice((0, 300, 2000, 8000)),
            min_compaction_lag_ms=random.choice((0, 0, 0, 400)),
            min_cleanable_dirty_ratio=random.choice((0.01, 0.01, 0.4)),
            file_delete_delay_ms=FILE_DELAY_MS,
        )
        keys = random.choice((2, 4, 12))
        properties = {
            "log.cleaner.backoff.ms": "50",
            "log.cleaner.dedupe.buffer.size": str(ENTRY_SIZE * 2 * random.choice((5, 9, 1000))),
            "log.cleaner.io.buffer.size": str(random.choice((40, 400, 1 << 19))),
            "log.cleaner.threads": random.choice(("1", "1", "2")),
        }
        producers = (NO_PRODUCER, *IDEMPOTENT, *TRANSACTIONAL)
        is_uniform = random.random() < 0.3
        return cls(
            config,
            properties,
            keys,
            is_uniform=is_uniform,
            ends=tuple(random.choices(list(End), weights=(2, 2, 6, 1), k=random.randint(2, 4))),
            acts=random.randint(20, 60),
            pause_s=random.choice((0.02, 0.1)),
            trims=random.random() < 0.3,
            empties=random.random() < (0.7 if is_uniform else 0.25),
            leaps=random.random() < 0.25,
            weights={each: random.choice((0.05, 0.3, 1.0)) for each in producers},
        )

    def leaning(self, seed: int) -> Shape:
        """Every third seed loses its power in swaps, and in every third one the start of the log moves while a round
        begins: neither waits for its draw."""
        match seed % 3:
            case 1:
                return replace(self, ends=(End.CUT,) * 4)
            case 2:
                return replace(self, trims=True)
        return self


class Swarm:
    """One seed. `run` raises `Violation`, as the cause of a `SimulationFailed` too."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/log cleaner")
        self.shape = Shape.drawn(Random(f"{seed}/shape")).leaning(seed)
        self._waits = Random(f"{seed}/waits")
        self._readers = Readers(Random(f"{seed}/readers"))
        self._cuts = Random(f"{seed}/cuts")
        self._cuts_swaps = False
        """Whether this life loses its power in a swap of cleaned segments, if it comes to one."""
        self.world = World(seed)
        self.host = self.world.add_host("broker-1")
        self.oracle = Oracle()
        self.looks = 0
        self.cleaned = 0
        """Rounds of cleaning."""
        self._epoch = 0
        self._count = 0
        self._keys = "key"
        """How the keys of the records begin that are written."""
        self._leaps_left = 2 * self.shape.leaps
        self._truncating: dict[str, int] = {}
        """By topic: the end of a truncation that is not durable yet."""
        self._synced: dict[str, int] = {}
        """By topic: where the log of the last process must end at least after its end."""
        self._durable: dict[str, int] = {}
        """The same after a loss of power."""
        self._horizons: dict[str, dict[int, int]] = {}
        """By topic: the delete horizons that this process has seen. A crash may bring back the batch without one."""
        self._is_stopping = False
        self._is_last = False
        self._is_settling = False
        self._has_ended = False
        self._process: Process | None = None
        self._acts: list[tuple[float, Callable[[Process], Awaitable[None] | None]]] = [
            (10, self._append),
            (2.5, self._end_transaction),
            (0.5, self._roll),
            (4, self._advance),
            (4, self._fetch),
            (1, self._look),
            (0.3, Process.checkpoint),
            (0.3, lambda process: process.flush(process.led.log)),
            (0.6, self._truncate),
            (0.3 * self.shape.trims, self._trim),
            ((0.6 if self.shape.is_uniform else 0.2) * self.shape.empties, self._empty),
            (1.5 * self.shape.leaps, self._leap),
        ]

    def run(self) -> None:
        with self.world:
            self.world.run(self._drive(), limit_s=LIMIT_S)

    # The driver, outside of the process

    async def _drive(self) -> None:
        for end in self.shape.ends:
            self._cuts_swaps = end is End.CUT and self._cuts.random() < (1.0 if self.seed % 3 == 1 else 0.5)
            await self._boot()
            if self._cuts_swaps:
                await self._until_down(SWAP_S_MAX)
            if end is End.CUT:
                await asyncio.sleep(self.random.random() * 1.5 if self.host.is_up else 0.0)
                self.host.disk.crash_at_step = self.host.disk.steps + self.random.randint(1, 80)
                await self._until_down(3.0)
            else:
                await asyncio.sleep(self.random.random() * 2)
                if end is End.STOP:
                    self._is_stopping = True
                    await self._until_down(60.0)
            self._note_synced(is_kept=end is End.KILL)
            if end is End.KILL:
                self.host.kill()
            elif end is not End.STOP or self.host.is_up:
                self.host.crash()
        self._is_last = True
        await self._boot()
        await self._until_down(LIMIT_S)
        assert self._has_ended

    def _cut_at_swap(self) -> None:
        """The steps that follow are the renames of a swap."""
        if self._cuts_swaps and not self._is_last and self._cuts.random() < SWAP_CUTS:
            self.host.disk.crash_at_step = self.host.disk.steps + self._cuts.randint(1, SWAP_STEPS)

    async def _boot(self) -> None:
        """A process that may lose its power while it starts."""
        self._process, self._is_stopping = None, False
        if not self._is_last and self.random.random() < 0.2:
            self.host.disk.crash_at_step = self.host.disk.steps + self.random.randint(1, 30)
            self.host.boot(self._live)
            await self._until_down(0.2)
            self._note_synced(is_kept=False)
            self._synced = dict(self._durable)
            self.host.crash()
        self.host.disk.crash_at_step = None
        self._process = None
        self.host.boot(self._live)

    async def _until_down(self, patience_s: float) -> None:
        for _ in range(int(patience_s / 0.05)):
            if not self.host.is_up:
                return
            await asyncio.sleep(0.05)

    def _note_synced(self, *, is_kept: bool) -> None:
        """What the next process must find at least."""
        if self._process is not None:
            for each in self._process.partitions:
                self._durable[each.topic] = each.log.synced_end_offset
                self._synced[each.topic] = each.log.end_offset if is_kept else each.log.synced_end_offset

    # The process

    async def _live(self, environment: SimulatedEnvironment) -> None:
        process = Process(environment, self.shape.config, self.shape.properties, self._waits)
        self._readers.held.clear()
        self._horizons.clear()
        await self._recovered(process)
        self._process = process
        process.on_cleaned = self._cut_at_swap
        process.on_wait = lambda: self._trim(process) if self.shape.trims and not self._is_settling else None
        process.cleaner.begin()
        weights = [weight for weight, _ in self._acts]
        number = 0
        while not self._is_stopping and not (self._is_last and number >= self.shape.acts):
            number += 1
            (_, act), *_ = self.random.choices(self._acts, weights)
            await self._perform(process, act)
            is_long = self.random.random() < 0.05
            await asyncio.sleep(self.random.random() * (0.8 if is_long else self.shape.pause_s))
        if self._is_last:
            await self._settle(process)
            self._has_ended = True
        self.cleaned += process.cleaner.totals.logs_cleaned
        await process.stop()

    async def _perform(self, process: Process, act: Callable[[Process], Awaitable[None] | None]) -> None:
        doing = act(process)
        if doing is not None:
            await doing
        self._may_be_cleaned(process)
        self._readers.step(process.partitions)

    def _may_be_cleaned(self, process: Process) -> None:
        now_ms = process.environment.wall_ms()
        self.oracle.committed_end = max(self.oracle.committed_end, process.led.high_watermark)
        for each in process.partitions:
            self.oracle.may_be_cleaned(min(each.last_stable_offset, each.log.active.base_offset), now_ms)

    async def _recovered(self, process: Process) -> None:
        for each in process.partitions:
            log, topic = each.log, each.topic
            names = process.environment.fs.list_directory(f"{ROOT}/{topic}-0")
            if left := [name for name in names if name.endswith(LEFTOVERS)]:
                raise Violation(f"the start has left {left}")
            if log.end_offset < self._synced.get(topic, 0) and topic not in self._truncating:
                raise Violation(f"{topic} ends at {log.end_offset}; {self._synced[topic]} was durable")
        led, copy = process.partitions
        if (offset := self._truncating.get(led.topic)) is not None:
            await process.truncate(led, offset, is_emptied=offset == self.oracle.start_offset)
        else:
            self._fetch_committed(led.log, process.environment.wall_ms())
        self.oracle.cut(led.log.end_offset)
        if self._truncating or copy.log.end_offset > led.log.end_offset:
            self._truncating[copy.topic] = led.log.log_start_offset
            await process.truncate(copy, led.log.log_start_offset, is_emptied=True)
        self._truncating.clear()
        self._synced.clear()
        self._look(process)

    def _fetch_committed(self, log: Log, now_ms: int) -> None:
        """From the replica that is not simulated."""
        for batch in self.oracle.batches:
            if log.end_offset <= batch.base_offset < self.oracle.committed_end:
                result = log.append_as_follower(self.oracle.data[batch.base_offset], self._epoch, now_ms)
                assert result.error == 0, result

    # What is written

    def _record(self, process: Process) -> Record:
        self._count += 1
        random = self.random
        number = random.randrange(self.shape.keys)
        if self.shape.is_uniform:
            key, value = f"{self._keys}-{number:03}", f"{self._count:06}"
        else:
            key = f"{self._keys}-{number}" * random.choice((1, 1, 5))
            value = f"{self._count}" * random.choice((1, 5, 20))
        is_tombstone = random.random() < 0.2 and not self.shape.is_uniform
        timestamp = process.environment.wall_ms() - random.choice((0, 0, random.randrange(300)))
        return Record(key.encode(), None if is_tombstone else value.encode(), timestamp)

    def _append(self, process: Process) -> None:
        random, weights = self.random, self.shape.weights
        (producer_id,) = random.choices(list(weights), list(weights.values()))
        count = 1 if self.shape.is_uniform else random.randint(1, 4)
        records = tuple(self._record(process) for _ in range(count))
        codec = Codec.NONE if self.shape.is_uniform else random.choice(list(Codec))
        epoch, sequence = -1, NO_SEQUENCE
        if producer_id != NO_PRODUCER:
            known = self.oracle.view.producers.get(producer_id)
            epoch = max(known.epoch, 0) if known else 0
            sequence = known.last_sequence + 1 if known else 0
            if known is not None and not known.opened and random.random() < 0.05:
                epoch, sequence = epoch + 1, 0
        is_transactional = producer_id in TRANSACTIONAL
        offset = process.led.log.end_offset
        self._write(
            process, Appended(offset, records, producer_id, epoch, sequence, is_transactional, None, codec, self._epoch)
        )

    def _write(self, process: Process, batch: Appended) -> None:
        data = build_batch(
            batch.records,
            codec=batch.codec,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
        )
        self._append_data(process.led.log, bytearray(data), batch, process.environment.wall_ms())

    def _append_data(self, log: Log, data: bytearray, batch: Appended, now_ms: int) -> None:
        self.oracle.append(batch)
        self.oracle.data[batch.base_offset] = data
        result = log.append_as_leader(data, self._epoch, now_ms, origin=AppendOrigin.COORDINATOR)
        assert result.error == 0 and result.base_offset == batch.base_offset, result

    def _end_transaction(self, process: Process) -> None:
        opened = [each for each, producer in self.oracle.view.producers.items() if producer.opened]
        if opened:
            self._end(process, self.random.choice(opened), commits=self.random.random() < 0.5)

    def _end_all(self, process: Process, *, commits: bool) -> None:
        for producer_id, producer in [*self.oracle.view.producers.items()]:
            if producer.opened:
                self._end(process, producer_id, commits=commits)

    def _end(self, process: Process, producer_id: int, *, commits: bool) -> None:
        now_ms, log = process.environment.wall_ms(), process.led.log
        epoch = self.oracle.view.producers[producer_id].epoch + self.random.choice((0, 1))
        marker = end_transaction_marker(
            commits=commits, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=now_ms
        )
        (record,) = records_of(marker)
        batch = Appended(
            log.end_offset, (record,), producer_id, epoch, NO_SEQUENCE, True, commits, Codec.NONE, self._epoch
        )
        self._append_data(log, bytearray(marker), batch, now_ms)

    def _leap(self, process: Process) -> None:
        """A batch as a follower gets it behind a gap. The batch and all before it are committed: the leader has cleaned
        past the batch, since a round keeps the batch that ends where it may clean no further."""
        is_leap = self._leaps_left > 0 and self.random.random() < 0.3
        if self.shape.leaps:
            self._leaps_left -= is_leap
            log = process.led.log
            offset = log.end_offset + (LEAP if is_leap else self.random.randint(1, HOPS_MAX))
            record = self._record(process)
            data = build_batch([record], base_offset=offset, partition_leader_epoch=self._epoch)
            self.oracle.append(Appended(offset, (record,), leader_epoch=self._epoch))
            self.oracle.data[offset] = data
            self.oracle.committed_end = offset + 1
            result = log.append_as_follower(data, self._epoch, process.environment.wall_ms())
            assert result.error == 0, result

    # What else happens to the logs

    def _roll(self, process: Process) -> None:
        partition = self.random.choice(process.partitions)
        partition.log.roll(process.environment.wall_ms())

    def _advance(self, process: Process) -> None:
        led = process.led
        high_watermark = led.high_watermark
        if self.random.random() < 0.7:
            high_watermark = led.log.end_offset
        elif later := [each.base_offset for each in self.oracle.batches if each.base_offset > led.high_watermark]:
            high_watermark = self.random.choice(later)
        led.apply_leader_high_watermark(high_watermark)

    async def _fetch(self, process: Process) -> None:
        """A copy that ends before the led log begins anew, and so does one that has lagged for longer than
        delete.retention.ms: of what it has, the leader may have dropped the tombstone or the marker already."""
        copy, led = process.copy.log, process.led.log
        since_ms = self.oracle.cleanable_since_ms(copy.end_offset)
        due_ms = process.environment.wall_ms() - self.shape.config.delete_retention_ms
        has_lagged = begins_anew = since_ms is not None and since_ms <= due_ms
        while begins_anew or copy.end_offset < led.log_start_offset:
            begins_anew = False
            self._truncating[process.copy.topic] = led.log_start_offset
            self._horizons.clear()
            await process.truncate(process.copy, led.log_start_offset, is_emptied=True)
            self._truncating.clear()
        while has_lagged and copy.end_offset < led.end_offset:
            await process.fetch(1 << 20)
        await process.fetch(self.random.choice((100, 600, 3000)))

    async def _truncate(self, process: Process) -> None:
        """To an offset that never was committed: nothing before it may have been cleaned away."""
        later = [each.base_offset for each in self.oracle.batches if each.base_offset >= self.oracle.committed_end]
        if later:
            await self._truncate_to(process, self.random.choice(later), is_emptied=False)

    async def _empty(self, process: Process) -> None:
        """As a follower whose leader has nothing of what it has."""
        offset = self.random.choice((self.oracle.start_offset, self.oracle.end_offset))
        count = len(self.oracle.batches)
        await self._truncate_to(process, offset, is_emptied=True)
        if self.shape.is_uniform:
            for _ in range(count):  # the segments are as large as they were
                self._append(process)
            process.led.apply_leader_high_watermark(process.led.log.end_offset)

    async def _truncate_to(self, process: Process, offset: int, *, is_emptied: bool) -> None:
        if is_emptied:
            self._truncating = {each.topic: offset for each in process.partitions}
            self.oracle.restart(offset)
            self._horizons.clear()
            await process.truncate(process.led, offset, is_emptied=True)
            await process.truncate(process.copy, offset, is_emptied=True)
        else:
            self._truncating[process.led.topic] = offset
            self.oracle.cut(offset)
            await process.truncate(process.led, offset)
            if process.copy.log.end_offset > offset:
                self._truncating[process.copy.topic] = offset
                await process.truncate(process.copy, offset)
        self._truncating.clear()
        self._epoch += 1

    def _trim(self, process: Process) -> None:
        led = process.led
        bases = [each.base_offset for each in self.oracle.batches if each.base_offset <= led.high_watermark]
        if bases:
            is_all = self.random.random() < 0.3
            offset = led.high_watermark if is_all else self.random.choice(bases[: len(bases) // 2 + 1])
            led.log.advance_log_start(offset, led.high_watermark)
        for each in process.partitions:
            process.retain(each)

    # The rules

    def _look(self, process: Process) -> None:
        self.looks += 1
        now_ms = process.environment.wall_ms()
        for each in process.partitions:
            if each.log.failure is not None:
                raise Violation(f"{each.topic} has failed: {each.log.failure}")
            if (reason := process.cleaner.uncleanable.get(each.log)) is not None:
                raise Violation(f"{each.topic} cannot be cleaned: {reason}")
            is_copy = each is process.copy
            horizons = self._horizons.setdefault(each.topic, {})
            check(each, self.oracle, horizons, now_ms, self.random, is_copy=is_copy)

    async def _settle(self, process: Process) -> None:
        """Nothing fails any more: everything is cleaned, deletions and the ends of transactions go at last."""
        self._is_settling = True
        self._end_all(process, commits=False)
        await self._catch_up(process)
        ends = {each.topic: each.log.active.base_offset for each in process.partitions}
        retention_ms = self.shape.config.delete_retention_ms + self.shape.config.min_compaction_lag_ms
        self._keys = "end"  # nothing written from here on supersedes a deletion
        for _ in range(ROUNDS_MAX):  # faster than tombstones may go
            await asyncio.sleep((retention_ms + 200) / 1000 / 2)
            self._append(process)
            self._end_all(process, commits=True)
            await self._catch_up(process)
            await self._append_at_rest(process)
            for each in process.partitions:
                await self._until_clean(process, each)
            stays = [what for each in process.partitions for what in self._superfluous(each, ends[each.topic])]
            if not stays:
                break
        else:
            raise Violation(f"after {ROUNDS_MAX} rounds stay {stays[:2]}")
        await self._clean_anew(process)
        for each in process.partitions:
            await self._until_tidy(process, each)

    async def _clean_anew(self, process: Process) -> None:
        """As after a loss of the checkpoint of the cleaner, while a deletion is the last record: it goes, and the
        offset behind it stays the end of the log."""
        self._end_all(process, commits=True)
        deletion = self._record(process)._replace(value=None)
        self._write(process, Appended(process.led.log.end_offset, (deletion,), leader_epoch=self._epoch))
        await self._catch_up(process)
        for _ in range(CLEANED_ANEW):
            for each in process.partitions:
                await self._until_clean(process, each)
            await asyncio.sleep(self.shape.config.delete_retention_ms / 1000)
            for each in process.partitions:
                each.log.first_dirty_offset = None
                each.log.note_change()

    async def _catch_up(self, process: Process) -> None:
        process.led.log.roll(process.environment.wall_ms())
        process.led.apply_leader_high_watermark(process.led.log.end_offset)
        while process.copy.log.end_offset < process.led.log.end_offset:
            await self._fetch(process)
        process.copy.log.roll(process.environment.wall_ms())
        self._may_be_cleaned(process)
        self._look(process)

    async def _append_at_rest(self, process: Process) -> None:
        """Batches that are committed and not rolled: the active segment is cleaned by no round, and holds up none."""
        self._append(process)
        process.led.apply_leader_high_watermark(process.led.log.end_offset)
        while process.copy.log.end_offset < process.led.log.end_offset:
            await self._fetch(process)
        self._may_be_cleaned(process)
        self._look(process)

    async def _until_clean(self, process: Process, partition: Partition) -> None:
        log, ratio = partition.log, self.shape.config.min_cleanable_dirty_ratio
        clean_offset, waited_s = log.first_dirty_offset, 0.0
        while waited_s < CLEAN_S:
            await asyncio.sleep(0.1)
            waited_s = waited_s + 0.1 if log.first_dirty_offset == clean_offset else 0.0
            clean_offset = log.first_dirty_offset
            start = log.log_start_offset if clean_offset is None else clean_offset
            dirty = sum(each.size for each in log.segments[:-1] if each.base_offset >= start)
            if dirty <= ratio * log.size:
                self._look(process)
                return
        raise Violation(f"{partition.topic} is clean up to {log.first_dirty_offset} of {log.end_offset} only")

    async def _until_tidy(self, process: Process, partition: Partition) -> None:
        left: list[str] = []
        for _ in range(int(CLEAN_S / 0.5)):
            await asyncio.sleep(0.5)
            names = process.environment.fs.list_directory(partition.log.directory)
            left = [name for name in names if name.endswith(LEFTOVERS)]
            if not left or process.cleaner.totals.failures:
                return
        raise Violation(f"{left} are left in a process in which no cleaning failed")

    def _superfluous(self, partition: Partition, end_offset: int) -> list[object]:
        """What should have gone at last of what was there long ago."""
        log, view = partition.log, self.oracle.view
        if self.shape.config.min_cleanable_dirty_ratio > 0.1:
            return []  # the last round may have been long ago as well
        held = [each for each in held_by(log) if each.header.base_offset < end_offset]
        needed = {view.markers.get(offset) for offset in stored_offsets(log)}
        markers = [
            header for header, records in held if header.is_control and records and header.base_offset not in needed
        ]
        return markers + [
            record
            for header, records in held
            for record in records
            if not header.is_control and (record.offset not in view.committed or record.value is None)
        ]
