"""Rounds of a killed writer: records are added, the writer is killed at a step, and the next run makes the table whole.

| table      | has to have, after each next run                                                            |
|------------|---------------------------------------------------------------------------------------------|
| append     | each offset of the topic once, partitioned by day; small files are joined                    |
| upsert     | the last value of each key; files are replaced                                               |
| dead-letter| each offset in one of two tables, values decoded by a schema that grows                      |

In none of them a file is left that no snapshot names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any, Final

from moldau.lake.round_rows import DEAD_LETTER
from moldau.protocol.record_builder import Record
from tests.lake.killed_writer import OCCURRENCES_MAX, STEPS, run
from tests.support.lake_stage import START_MS, LakeStage, all_offsets, framed

SCHEMAS: Final[tuple[dict[str, Any], ...]] = tuple(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{each}", "type": ["null", "long"]} for each in range(count)],
    }
    for count in range(1, 8)
)
KILLED: Final = -9


class Story:
    """One table, the records that were written for it, and what it has to have."""

    def __init__(self, directory: Path, kind: str, dice: Random) -> None:
        directory.mkdir(parents=True)
        self.kind = kind
        self.stage = LakeStage(directory)
        self._dice = dice
        self._last: dict[bytes, bytes] = {}
        self._letters: set[tuple[int, int]] = set()
        options: dict[str, dict[str, Any]] = {
            "append": {"mode": "append", "round_size": 2_000, "compact_files_min": 3},
            "upsert": {"mode": "upsert"},
            DEAD_LETTER: {"registry": str(self.stage.schemas), "misfits": DEAD_LETTER, "unit": None},
        }
        self.choices = self.stage.choices(**options[kind])
        for number, schema in enumerate(SCHEMAS, 1):
            self.stage.put_schema(number, schema)

    def write(self) -> None:
        """Add records to two partitions."""
        for partition in (0, 1):
            count = self._dice.randint(1, 40)
            write: dict[str, Callable[[int, int], None]] = {
                "append": lambda partition, count: self.stage.numbered(count, partition, days=2),
                "upsert": self._write_keys,
                DEAD_LETTER: self._write_framed,
            }
            write[self.kind](partition, count)

    def check(self) -> None:
        """Compare the tables with what was written."""
        everything = all_offsets(self.stage.ends.items())
        if self.kind == "upsert":
            rows = {row["key"]: row["value"] for row in self.stage.rows()}
            assert rows == self._last and len(self.stage.rows()) == len(self._last)
        elif self.kind == "append":
            assert self.stage.offsets() == everything
        else:
            letters = self.stage.offsets("t_dead_letters")
            assert sorted(self.stage.offsets() + letters) == everything
            assert set(letters) == self._letters
            assert self.stage.orphans("t_dead_letters") == []
        assert self.stage.orphans() == []
        assert self.stage.verified().findings == []

    def _write_keys(self, partition: int, count: int) -> None:
        records = []
        for _ in range(count):
            key = f"{partition}-{self._dice.randrange(30)}".encode()
            value = None if self._dice.random() < 0.2 else str(self._dice.random()).encode()
            records.append(Record(key, value, START_MS))
            self._last.pop(key, None)
            if value is not None:
                self._last[key] = value
        self.stage.append(records, partition)

    def _write_framed(self, partition: int, count: int) -> None:
        start = self.stage.ends.get(("t", partition), 0)
        records = []
        for offset in range(start, start + count):
            number = self._dice.randint(1, len(SCHEMAS))
            value = framed(number, SCHEMAS[number - 1], {f"f{each}": offset for each in range(number)})
            if self._dice.random() < 0.1:
                value = value[:-1] + b"\xff\xff"
                self._letters.add((partition, offset))
            records.append(Record(b"k", value, START_MS))
        self.stage.append(records, partition)


def campaign(directory: Path, kills: int, seed: int, say: Callable[[str], None]) -> Counter[str]:
    """Kill writers so many times, in stories of all kinds and at all steps. Returns how often at which step."""
    dice = Random(seed)
    stories = [Story(directory / kind, kind, dice) for kind in ("append", "upsert", DEAD_LETTER)]
    wanted = cycle(product(STEPS, range(1, OCCURRENCES_MAX + 1), stories))
    killed: Counter[str] = Counter()
    while killed.total() < kills:
        step, occurrence, story = next(wanted)
        if dice.random() < 0.5:
            continue  # A prefix of the list would be the same steps in every short run.
        story.write()
        code = run(story.choices, step, occurrence)
        assert code in (0, KILLED), f"{story.kind}: the writer ended with {code}"
        if code == KILLED:
            killed[step] += 1
            say(f"kill {killed.total()}: {story.kind}, {step}, occurrence {occurrence}")
            if dice.random() < 0.3:  # The next run is killed as well.
                run(story.choices, dice.choice(STEPS), dice.randint(1, OCCURRENCES_MAX))
        assert run(story.choices) == 0, f"{story.kind}, killed at {step}: the next run failed"
        story.check()
    return killed
