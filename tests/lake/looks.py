"""Looks at a live table: a writer of records, a follower that is killed and compacts, and a model of what was written.

Each look pins the relation, and has to have exactly the records of the model before the ends that it says: no row
missing, none twice, each with its value; and no end before what was written when the look began.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

import moldau
from moldau.protocol.record_builder import Record
from tests.lake.killed_writer import STEPS, run
from tests.support.lake_stage import START_MS, LakeStage

ROWS_MAX: Final = 60
PARTITIONS: Final = 2
ROUND_SIZE: Final = 20_000
"""Bytes of segments in a commit: those of some looks, so that the follower keeps up and ends often."""


class Model:
    """What was written to each partition, in order."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[bytes, bytes | None]]] = {each: [] for each in range(PARTITIONS)}

    def expected(self, ends: dict[int, int], *, by_key: bool) -> dict[object, bytes | None]:
        """The rows of a table up to these ends: by partition and offset, or by key."""
        rows: dict[object, bytes | None] = {}
        for partition, end in ends.items():
            for offset, (key, value) in enumerate(self.written[partition][:end]):
                if not by_key:
                    rows[partition, offset] = value
                elif value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
        return rows


class Looks:
    """One story of looks at one table."""

    def __init__(self, directory: Path, mode: str, seed: int) -> None:
        self._stage = LakeStage(directory)
        self._mode = mode
        self._dice = Random(seed)
        self._model = Model()
        self._ended = Event()
        self._problems: list[BaseException] = []
        self.kills = self.runs = 0
        self._choices = self._stage.choices(mode=mode, round_size=ROUND_SIZE, compacts_from=3, unit=None)

    def look(self, count: int, say: Callable[[str], None] = lambda _: None) -> None:
        """Look so often, while records are written and the follower is killed. Raises AssertionError."""
        self._write()
        assert run(self._choices) == 0
        following = Thread(target=self._follow)
        following.start()
        try:
            for number in range(count):
                self._write()
                self._compare()
                if number % 100 == 99:
                    say(f"{self._mode}: {number + 1} looks, {self.kills} kills in {self.runs} runs of the follower")
        finally:
            self._ended.set()
            following.join()
        assert not self._problems, self._problems
        assert run(self._choices) == 0 and self._stage.verified().findings == []

    def _write(self) -> None:
        for partition in range(PARTITIONS):
            records = []
            for _ in range(self._dice.randint(1, ROWS_MAX)):
                key = b"%d-%d" % (partition, self._dice.randrange(50))
                is_deletion = self._mode == "upsert" and self._dice.random() < 0.2
                records.append(Record(key, None if is_deletion else b"%d" % self._dice.getrandbits(64), START_MS))
            self._model.written[partition] += [(each.key or b"", each.value) for each in records]
            self._stage.append(records, partition)

    def _compare(self) -> None:
        begun = {partition: end for (_, partition), end in self._stage.ends.items()}
        found = moldau.table(self._stage.warehouse, "t", live=str(self._stage.logs))
        assert all(found.offsets[each] >= end for each, end in begun.items()), (found.offsets, begun)
        by_key = self._mode == "upsert"
        rows = found.to_table()
        columns = [rows[name].to_pylist() for name in ("key", "partition", "offset", "value")]
        have = {
            key if by_key else (partition, offset): value
            for key, partition, offset, value in zip(*columns, strict=True)
        }
        expected = self._model.expected(dict(found.offsets), by_key=by_key)
        assert len(rows) == len(have) == len(expected), (len(rows), len(have), len(expected), found.table_offsets)
        assert have == expected

    def _follow(self) -> None:
        """Run the follower, in processes of which most are killed at a step of a commit."""
        dice = Random(self._dice.random())
        try:
            while not self._ended.is_set():
                is_killed = dice.random() < 0.6
                code = run(self._choices, dice.choice(STEPS) if is_killed else None, dice.randint(1, 6))
                assert code in (0, -9), f"the follower ended with {code}"
                self.runs += 1
                self.kills += code == -9
        except BaseException as problem:
            self._problems.append(problem)
