"""Looks at a live table under a writer of a steady rate, while the follower is killed and compacts.

What a record says follows from its partition and offset, so the rows that a look has to have follow from the ends that
it says: in a table of records each offset once, by key the last of each key, in each with the value of its offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

import moldau
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.lake.killed_writer import STEPS, run
from tests.support.lake_stage import START_MS, LakeStage
from tests.support.segments import EPOCH, write_checkpoints

VALUE_SIZE: Final = 1_000
BATCH_RECORDS: Final = 500
PARTITIONS: Final = 2
KEYS: Final = 2_000
"""In each partition. Of so many offsets in a row each has another key."""
DELETED: Final = 5
"""Of so many records one is a tombstone, in a table by key."""
WINDOW: Final = 2_000
"""Rows whose values are compared: those before and after the end of the table."""
FILLER: Final = bytes(range(256)) * 4
ROUND_SIZE: Final = 32 << 20
RUN_S_MAX: Final = 900.0
"""Seconds of a run of the follower, which takes all that was written before it, also on a machine that does more."""


def key_of(partition: int, offset: int) -> bytes:
    return b"%d-%d" % (partition, offset * 7 % KEYS)


def value_of(partition: int, offset: int) -> bytes:
    head = b"%d-%d-" % (partition, offset)
    return head + FILLER[: VALUE_SIZE - len(head)]


def is_deletion(offset: int) -> bool:
    return offset // KEYS % DELETED == offset % DELETED


class PacedWriter:
    """Appends records to all partitions at a rate, and moves the high watermarks past them."""

    def __init__(self, stage: LakeStage, mode: str, rate: float) -> None:
        """`rate` is in bytes of values a second."""
        self._stage = stage
        self._mode = mode
        self._rate = rate
        config = LogConfig(segment_bytes=16 << 20)
        self._logs = {
            each: Log.open(LocalFiles(), f"{stage.logs}/t-{each}", config, clean_shutdown=True, now_ms=0)
            for each in range(PARTITIONS)
        }
        self.ends = dict.fromkeys(self._logs, 0)
        self.rate_reached = 0.0

    def write(self) -> None:
        """Append a batch to each partition."""
        for partition, log in self._logs.items():
            start = self.ends[partition]
            records = [self._record(partition, offset) for offset in range(start, start + BATCH_RECORDS)]
            batch = build_batch(records, base_offset=start, partition_leader_epoch=EPOCH)
            assert not log.append_as_follower(batch, EPOCH, 0).error
        ends = {each: log.end_offset for each, log in self._logs.items()}
        write_checkpoints(self._stage.logs, {("t", each): end for each, end in ends.items()})
        self.ends = ends

    def write_until(self, ended: Event) -> None:
        began, written = time.monotonic(), 0
        while not ended.is_set():
            due = (time.monotonic() - began) * self._rate / VALUE_SIZE
            if written > due:
                ended.wait(0.01)
                continue
            self.write()
            written += BATCH_RECORDS * PARTITIONS
        self.rate_reached = written * VALUE_SIZE / (time.monotonic() - began)
        for log in self._logs.values():
            log.close(0, clean=True)

    def _record(self, partition: int, offset: int) -> Record:
        deletes = self._mode == "upsert" and is_deletion(offset)
        return Record(key_of(partition, offset), None if deletes else value_of(partition, offset), START_MS)


class PacedLooks:
    """One story of looks at one table."""

    def __init__(self, directory: Path, mode: str, rate: float, seed: int) -> None:
        self._stage = LakeStage(directory)
        self._mode = mode
        self._dice = Random(seed)
        self._ended = Event()
        self._problems: list[BaseException] = []
        self.writer = PacedWriter(self._stage, mode, rate)
        self.kills = self.runs = 0
        self._choices = self._stage.choices(mode=mode, round_size=ROUND_SIZE, compacts_from=3, unit=None)

    def look(self, count: int, say: Callable[[str], None]) -> None:
        """Look so often. Raises AssertionError."""
        self.writer.write()
        assert run(self._choices) == 0
        others = [Thread(target=self._kept, args=(each,)) for each in (self._follow, self._write)]
        for each in others:
            each.start()
        try:
            for number in range(count):
                self._compare()
                assert not self._problems, self._problems
                if number % 25 == 24:
                    rows = sum(self.writer.ends.values())
                    say(f"{self._mode}: {number + 1} looks, {rows:,} records, {self.kills} kills in {self.runs} runs")
        finally:
            self._ended.set()
            for each in others:
                each.join()
        assert not self._problems, self._problems
        assert run(self._choices, ended_s_max=RUN_S_MAX) == 0 and self._stage.verified().findings == []

    def _kept(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self._problems.append(problem)

    def _write(self) -> None:
        self.writer.write_until(self._ended)

    def _follow(self) -> None:
        dice = Random(self._dice.random())
        while not self._ended.is_set():
            is_killed = dice.random() < 0.4
            code = run(self._choices, dice.choice(STEPS) if is_killed else None, dice.randint(1, 6), RUN_S_MAX)
            assert code in (0, -9), f"the follower ended with {code}"
            self.runs += 1
            self.kills += code == -9

    def _compare(self) -> None:
        begun = dict(self.writer.ends)
        found = moldau.table(self._stage.warehouse, "t", live=str(self._stage.logs))
        assert all(found.offsets[each] >= end for each, end in begun.items()), (found.offsets, begun)
        places = found.to_table(["partition", "offset"])
        for partition, end in found.offsets.items():
            have = np.sort(np.asarray(places.filter(pc.equal(places["partition"], partition))["offset"]))
            assert np.array_equal(have, self._expected(end)), (partition, end, found.table_offsets, len(have))
        partition = self._dice.randrange(PARTITIONS)
        edge = found.table_offsets.get(partition, 0)
        is_near = (pc.field("offset") >= edge - WINDOW) & (pc.field("offset") < edge + WINDOW)
        wanted = (pc.field("partition") == partition) & is_near if self._mode == "append" else None
        check_values(found.to_table(["key", "partition", "offset", "value"], filter=wanted))

    def _expected(self, end: int) -> Any:
        """The offsets of the rows of a partition that ends there, ascending."""
        if self._mode == "append":
            return np.arange(end)
        last = range(max(0, end - KEYS), end)
        return np.array([offset for offset in last if not is_deletion(offset)], np.int64)


def check_values(rows: pa.Table) -> None:
    columns = (rows[name].to_pylist() for name in ("partition", "offset", "key", "value"))
    for partition, offset, key, value in zip(*columns, strict=True):
        assert (key, value) == (key_of(partition, offset), value_of(partition, offset)), (partition, offset)
