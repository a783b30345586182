"""Looks at a live table under a writer of a steady rate, while the follower is killed and compacts.

What a record says follows from its partition and offset, so the rows that a look has to have follow from the ends that
it says: in a table of records each offset once, by key the last of each key, in each with the value of its offset. The
forms of the tables are those of `looks`; a value has spaces before it, so that it has its size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

import moldau
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.lake.killed_writer import RUNS, STEPS, child, run
from tests.lake.looks import FORMS, Form
from tests.support.lake_stage import START_MS, LakeStage
from tests.support.segments import EPOCH, write_checkpoints

VALUE_SIZE: Final = 1_000
BATCH_RECORDS: Final = 500
PARTITIONS: Final = 2
PLACE: Final = ("partition", "offset")
KEYS: Final = 2_000
"""In each partition. Of so many offsets in a row each has another key."""
DELETED: Final = 5
"""Of so many records one is a tombstone, in a table by key."""
WINDOW: Final = 2_000
"""Rows whose values are compared: those before and after the end of the table."""
ROUND_SIZE: Final = 32 << 20
RUN_S_MAX: Final = 900.0
"""Seconds of a run of the follower, which takes all that was written before it, also on a machine that does more."""


def key_of(partition: int, offset: int) -> str:
    return f"{partition}-{offset * 7 % KEYS}"


def number_of(partition: int, offset: int) -> int:
    return partition << 40 | offset


def is_deletion(offset: int) -> bool:
    return offset // KEYS % DELETED == offset % DELETED


def write(logs: Path, name: str, rate: float, ends: Any, ended: Any) -> None:
    """Append records to all partitions at a rate, and move the high watermarks past them, until it is ended. `ends` are
    those of the partitions, as soon as each is there.
    """
    form, config = FORMS[name], LogConfig(segment_bytes=16 << 20)
    files = [
        Log.open(LocalFiles(), f"{logs}/t-{each}", config, clean_shutdown=True, now_ms=0) for each in range(PARTITIONS)
    ]
    began, written = time.monotonic(), 0
    while not ended.is_set():
        if written > (time.monotonic() - began) * rate / VALUE_SIZE:
            ended.wait(0.01)
            continue
        for partition, log in enumerate(files):
            start = log.end_offset
            records = [record(form, partition, offset) for offset in range(start, start + BATCH_RECORDS)]
            batch = build_batch(records, base_offset=start, partition_leader_epoch=EPOCH)
            assert not log.append_as_follower(batch, EPOCH, 0).error
        write_checkpoints(logs, {("t", each): log.end_offset for each, log in enumerate(files)})
        ends[:] = [log.end_offset for log in files]
        written += BATCH_RECORDS * PARTITIONS


def record(form: Form, partition: int, offset: int) -> Record:
    deletes = form.mode == "upsert" and is_deletion(offset)
    value = form.value(None if deletes else number_of(partition, offset))
    return Record(form.key(key_of(partition, offset)), None if value is None else value.rjust(VALUE_SIZE), START_MS)


class PacedLooks:
    """One story of looks at one table."""

    def __init__(self, directory: Path, name: str, rate: float, seed: int) -> None:
        """`name` is one of `FORMS`; `rate` is in bytes of values a second."""
        self._stage = LakeStage(directory)
        self._name, self._form = name, FORMS[name]
        self._dice = Random(seed)
        self._ended = RUNS.Event()
        self._problems: list[BaseException] = []
        self._ends: Any = RUNS.Array("q", PARTITIONS)
        self._writer = child(write, self._stage.logs, name, rate, self._ends, self._ended)
        self.rate_reached = 0.0
        self.kills = self.runs = 0
        chosen = {"mode": self._form.mode, "round_size": ROUND_SIZE, "compact_files_min": 3, "unit": None}
        self._choices = self._stage.choices(**chosen, **self._form.chosen)

    def look(self, count: int, say: Callable[[str], None]) -> None:
        """Look so often. Raises AssertionError."""
        following = Thread(target=self._follow)
        self._writer.start()
        try:
            while not all(self._ends):
                assert self._writer.is_alive()
                time.sleep(0.01)
            began, first = time.monotonic(), sum(self._ends)
            assert run(self._choices) == 0
            following.start()
            for number in range(count):
                self._compare()
                assert self._writer.is_alive() and not self._problems, self._problems
                if number % 25 == 24:
                    rows = sum(self._ends)
                    say(f"{self._name}: {number + 1} looks, {rows:,} records, {self.kills} kills in {self.runs} runs")
            self.rate_reached = (sum(self._ends) - first) * VALUE_SIZE / (time.monotonic() - began)
        finally:
            self._ended.set()
            self._writer.join()
            if following.ident is not None:
                following.join()
        assert self._writer.exitcode == 0 and not self._problems, self._problems
        assert run(self._choices, ended_s_max=RUN_S_MAX) == 0 and self._stage.verified().findings == []

    def _follow(self) -> None:
        """Run the follower, in processes of which some are killed at a step of a commit."""
        dice = Random(self._dice.random())
        try:
            while not self._ended.is_set():
                is_killed = dice.random() < 0.7
                code = run(self._choices, dice.choice(STEPS) if is_killed else None, dice.randint(1, 6), RUN_S_MAX)
                assert code in (0, -9), f"the follower ended with {code}"
                self.runs += 1
                self.kills += code == -9
        except BaseException as problem:
            self._problems.append(problem)

    def _compare(self) -> None:
        begun = dict(enumerate(self._ends))
        found = moldau.table(self._stage.warehouse, "t", live=str(self._stage.logs))
        assert all(found.offsets[each] >= end for each, end in begun.items()), (found.offsets, begun)
        places = found.to_table(["partition", "offset"])
        for partition, end in found.offsets.items():
            have = np.sort(np.asarray(places.filter(pc.equal(places["partition"], partition))["offset"]))
            assert np.array_equal(have, self._expected(end)), (partition, end, found.table_offsets, len(have))
        partition = self._dice.randrange(PARTITIONS)
        edge = found.table_offsets.get(partition, 0)
        is_near = (pc.field("offset") >= edge - WINDOW) & (pc.field("offset") < edge + WINDOW)
        wanted = (pc.field("partition") == partition) & is_near if self._form.mode == "append" else None
        self._check_values(found.to_table([*PLACE, *self._form.columns], filter=wanted))

    def _expected(self, end: int) -> Any:
        """The offsets of the rows of a partition that ends there, ascending."""
        if self._form.mode == "append":
            return np.arange(end)
        last = range(max(0, end - KEYS), end)
        return np.array([offset for offset in last if not is_deletion(offset)], np.int64)

    def _check_values(self, rows: pa.Table) -> None:
        columns = (rows[name].to_pylist() for name in (*PLACE, *self._form.columns))
        for partition, offset, *made in zip(*columns, strict=True):
            expected = key_of(partition, offset), number_of(partition, offset)
            assert self._form.row(*made) == expected, (partition, offset)
