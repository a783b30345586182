"""Rounds in which the cleaner, retention, tiering and appends change a log under a Spark read: right rows, or a named
error.

In one half of the rounds the changes come between planning and reading, so that the right rows are known exactly. In
the other half they come from a thread at any moment: then all records that are left at the end must have been read, and
nothing that was aborted.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, write_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import list_segments
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.tables.refusals import DataLost, Refused
from pyspark_moldau import DefaultSource
from tests.support.segments import write_checkpoints
from tests.support.tiered_copy import CLUSTER, copy_segment
from tests.unit.storage.compaction.histories import (
    NOW_MS,
    clean_log,
    committed,
    end_transaction,
    send,
    stored,
)

CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    cleanup_policy=("compact", "delete"),
    delete_retention_ms=0,
    retention_bytes=4000,
    file_delete_delay_ms=60_000,
)
TIERED_CONFIG = replace(
    CONFIG, cleanup_policy=("delete",), retention_bytes=-1, is_tiered=True, local_retention_bytes=1500
)
PRODUCERS = 2
RIGHT, LOST, CHANGING = "right rows", "DataLost", "refused: it changed all the time"


class ChangingLog:
    """A partition `t-0` of a log directory with random changes."""

    config = CONFIG

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self.directory = directory
        self._dice = dice
        self._log = Log.open(LocalFiles(), f"{directory}/t-0", self.config, now_ms=NOW_MS)
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()
        self.committed: set[tuple[int, bytes | None, bytes | None]] = set()
        """The rows that were ever committed, whether or not they are still there."""

    @property
    def path(self) -> str:
        """The option `path` of a read."""
        return str(self.directory)

    def write(self, count: int) -> None:
        """Append batches, some in transactions; then everything is below the high watermark."""
        for _ in range(count):
            pairs = [
                (f"k{self._dice.randrange(6)}", "v" * self._dice.randrange(30)) for _ in range(self._dice.randint(1, 4))
            ]
            producer_id = self._dice.randrange(3 * PRODUCERS)
            if producer_id >= PRODUCERS:
                send(self._log, *pairs)
            elif producer_id in self._open and self._dice.random() < 0.5:
                self._open.discard(producer_id)
                end_transaction(self._log, producer_id, 0, commits=self._dice.random() < 0.5)
            else:
                self._open.add(producer_id)
                sequence = self._sequences.get(producer_id, 0)
                self._sequences[producer_id] = sequence + len(pairs)
                send(self._log, *pairs, producer=(producer_id, 0, sequence), is_transactional=True)
        for producer_id in list(self._open):
            if self._dice.random() < 0.7:
                self._open.discard(producer_id)
                end_transaction(self._log, producer_id, 0, commits=self._dice.random() < 0.5)
        self.committed |= self.rows(is_committed=True)
        write_checkpoints(self.directory, {("t", 0): self._log.end_offset})
        if "compact" in self.config.cleanup_policy:
            write_offsets(LocalFiles(), str(self.directory), CLEANER_OFFSET_CHECKPOINT, {("t", 0): 0})

    def change(self) -> None:
        """One random change that a broker makes to its files; renamed files may be removed at once."""
        match self._dice.randrange(5):
            case 0 | 1:
                # The cleaning removed the segments that it replaced.
                clean_log(LocalFiles(), self._log, NOW_MS + 10_000)
            case 2:
                renamed = self._log.delete_old_segments(NOW_MS, self._log.end_offset)
                if self._dice.random() < 0.5:
                    for path in renamed:
                        Path(path).unlink()
            case 3:
                self.write(self._dice.randint(1, 20))
            case _:
                self._log.roll(NOW_MS)

    def rows(self, *, is_committed: bool) -> set[tuple[int, bytes | None, bytes | None]]:
        """The rows that a consumer would get now."""
        if is_committed:
            return {(each.offset, each.key, each.value) for each in committed(self._log)}
        return {
            (each.offset, each.key, each.value)
            for header, records, _ in stored(self._log)
            if not header.is_control
            for each in records
            if each.offset >= self._log.log_start_offset
        }

    def close(self) -> None:
        self._log.close(NOW_MS, clean=False)


class TieredChangingLog(ChangingLog):
    """A partition whose sealed segments are copied to a tiered storage, where they stay; the local ones are deleted."""

    config = TIERED_CONFIG

    def __init__(self, directory: Path, dice: random.Random) -> None:
        super().__init__(directory / "local", dice)
        self._tier = directory / "tier"
        self._tier.mkdir()
        self._storage = DirectoryStorage(str(self._tier), random.Random(dice.random()))
        asyncio.run(self._storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(CLUSTER)))
        self._copied = 0
        self._gone: dict[bool, set[tuple[int, bytes | None, bytes | None]]] = {True: set(), False: set()}
        """Rows of deleted local segments, by whether they are committed: a copied segment has no open transaction."""

    @property
    def path(self) -> str:
        return f"{self.directory},{self._tier}"

    def change(self) -> None:
        match self._dice.randrange(4):
            case 0 | 1:
                self._copy(self._dice.randint(1, 4))
                self._delete_local()
            case 2:
                self.write(self._dice.randint(1, 20))
            case _:
                self._log.roll(NOW_MS)

    def rows(self, *, is_committed: bool) -> set[tuple[int, bytes | None, bytes | None]]:
        return super().rows(is_committed=is_committed) | self._gone[is_committed]

    def _copy(self, count: int) -> None:
        """Copy the next sealed segments below the last stable offset."""
        limit = self._log.last_stable_offset(self._log.end_offset)
        for segment in list_segments(LocalFiles(), f"{self.directory}/t-0")[:-1]:
            end_offset = segment.next_base_offset or 0
            if segment.base_offset < self._log.tiered_end_offset or end_offset > limit or not count:
                continue
            count -= 1
            self._copied += 1
            segment_id = self._copied.to_bytes(16, "big")
            asyncio.run(copy_segment(self._storage, segment, segment_id=segment_id))
            self._log.tiered_end_offset = end_offset

    def _delete_local(self) -> None:
        """Apply local retention; renamed files may be removed at once."""
        for is_committed in (True, False):
            self._gone[is_committed] |= super().rows(is_committed=is_committed)
        renamed = self._log.delete_old_segments(NOW_MS, self._log.end_offset)
        left = self._log.local_start_offset
        for is_committed in (True, False):
            self._gone[is_committed] = {row for row in self._gone[is_committed] if row[0] < left}
        if self._dice.random() < 0.5:
            for path in renamed:
                Path(path).unlink()


def run_rounds(count: int, seed: int) -> Counter[str]:
    """Run rounds.

    Returns the number of rounds by result. Raises `AssertionError` with the seed of a round that read wrong rows.
    """
    outcomes: Counter[str] = Counter()
    for number in range(count):
        with tempfile.TemporaryDirectory() as name:
            try:
                dice = random.Random(f"{seed}/{number}")
                kind = TieredChangingLog if number % 4 >= 2 else ChangingLog
                outcomes[one_round(kind(Path(name), dice), dice, is_concurrent=number % 2 == 1)] += 1
            except AssertionError as wrong:
                raise AssertionError(f"round {number} of seed {seed}: {wrong}") from wrong
    return outcomes


def one_round(log: ChangingLog, dice: random.Random, *, is_concurrent: bool) -> str:
    try:
        log.write(dice.randint(10, 80))
        for _ in range(dice.randrange(3)):
            log.change()
        is_committed = dice.random() < 0.5
        isolation = "read_committed" if is_committed else "read_uncommitted"
        options = {"path": log.path, "subscribe": "t", "kafka.isolation.level": isolation}
        options |= {"columns": "offset,key,value", "minPartitions": str(dice.randint(1, 6))}
        if is_concurrent:
            return concurrent_round(log, dice, options, is_committed=is_committed)
        return planned_round(log, dice, options, is_committed=is_committed)
    finally:
        log.close()


def planned_round(log: ChangingLog, dice: random.Random, options: dict[str, str], *, is_committed: bool) -> str:
    """The log changes between planning and reading, and between tasks."""
    source = DefaultSource(options)
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    expected = log.rows(is_committed=is_committed)
    rows: list[tuple[object, ...]] = []
    try:
        for task in tasks:
            for _ in range(dice.randrange(3)):
                log.change()
            rows += rows_in(reader, task)
    except DataLost:
        return LOST
    assert len(rows) == len(set(rows)), "a record was read twice"
    assert set(rows) == expected, f"{len(set(rows) - expected)} rows too many, {len(expected - set(rows))} too few"
    return RIGHT


def rows_in(reader: DataSourceReader, task: InputPartition) -> list[tuple[object, ...]]:
    """The rows of a task."""
    batches: Iterable[Any] = reader.read(task)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def concurrent_round(log: ChangingLog, dice: random.Random, options: dict[str, str], *, is_committed: bool) -> str:
    """A thread changes the log during the whole round."""
    everything = log.rows(is_committed=False)
    visible = log.rows(is_committed=is_committed)
    stops = threading.Event()
    failures: list[BaseException] = []

    def change() -> None:
        try:
            for _ in range(30):
                if stops.is_set():
                    return
                if dice.randrange(5) != 3:
                    log.change()
        except BaseException as failure:
            failures.append(failure)

    changer = threading.Thread(target=change)
    changer.start()
    rows: list[tuple[object, ...]] = []
    try:
        source = DefaultSource(options)
        reader = source.reader(source.schema())
        for task in reader.partitions():
            rows += rows_in(reader, task)
    except DataLost:
        return LOST
    except Refused as refused:
        assert "changed" in str(refused), refused
        return CHANGING
    finally:
        stops.set()
        changer.join()
        assert not failures, failures
    left = log.rows(is_committed=is_committed) & visible
    assert len(rows) == len(set(rows)), "a record was read twice"
    missing = left - set(rows)
    assert not missing, f"{len(missing)} rows of {len(left)} are missing"
    if is_committed:
        strange = (set(rows) & everything) - log.committed
        assert not strange, f"{len(strange)} rows were never committed"
    return RIGHT
