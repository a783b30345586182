"""Looks at a live table: a writer of records, a follower that is killed and compacts, and a model of what was written.

Each look pins the relation, and has to have exactly the records of the model before the ends that it says: no row
missing, none twice, each with its value; and no end before what was written when the look began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import moldau
from moldau.lake.layout import ChosenLayout
from moldau.protocol.record_builder import Record
from tests.lake.killed_writer import STEPS, run
from tests.support.lake_stage import START_MS, LakeStage

ROWS_MAX: Final = 60
PARTITIONS: Final = 2
ROUND_SIZE: Final = 20_000
"""Bytes of segments in a commit: those of some looks, so that the follower keeps up and ends often."""


class Form(NamedTuple):
    """How keys and values are written, and what of a row they are."""

    mode: str
    chosen: Mapping[str, Any]
    """Choices of the follower."""
    key: Callable[[str], bytes]
    value: Callable[[int | None], bytes | None]
    """Of None what deletes the row of a key."""
    columns: tuple[str, ...]
    row: Callable[..., tuple[str, int]]
    """The key and the value, from these columns."""


def as_number(value: int | None) -> bytes | None:
    return None if value is None else b"%d" % value


def as_event(value: int | None) -> bytes:
    if value is None:
        return b'{"op": "d", "before": {"n": 0}, "after": null}'
    return b'{"op": "u", "before": null, "after": {"n": %d}}' % value


FORMS: Final[Mapping[str, Form]] = {
    "append": Form(
        "append", {}, str.encode, as_number, ("key", "value"), lambda key, value: (key.decode(), int(value))
    ),
    "upsert": Form(
        "upsert", {}, str.encode, as_number, ("key", "value"), lambda key, value: (key.decode(), int(value))
    ),
    "flat, partitioned, sorted": Form(
        "append",
        {
            "schema": "sample",
            "key_type": "string",
            "is_flat": True,
            "layout": ChosenLayout(("of_kind",), ("number",)),
        },
        str.encode,
        lambda value: json.dumps({"Number": value, "of": {"Kind": (value or 0) % 3}}).encode(),
        ("key", "number"),
        lambda key, number: (key, number),
    ),
    "debezium": Form(
        "upsert",
        {"schema": "sample", "key_type": "sample", "envelope": "debezium"},
        lambda key: json.dumps({"id": key}).encode(),
        as_event,
        ("key", "value"),
        lambda key, value: (key["id"], value["n"]),
    ),
}


class Model:
    """What was written to each partition, in order."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[str, int | None]]] = {each: [] for each in range(PARTITIONS)}

    def expected(self, ends: dict[int, int], *, by_key: bool) -> dict[object, int | None]:
        """The rows of a table up to these ends: by partition and offset, or by key."""
        rows: dict[object, int | None] = {}
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

    def __init__(self, directory: Path, name: str, seed: int) -> None:
        """`name` is one of `FORMS`."""
        self._stage = LakeStage(directory)
        self._name, self._form = name, FORMS[name]
        self._dice = Random(seed)
        self._model = Model()
        self._ended = Event()
        self._problems: list[BaseException] = []
        self.kills = self.runs = 0
        chosen = {"mode": self._form.mode, "round_size": ROUND_SIZE, "compact_files_min": 3, "unit": None}
        self._choices = self._stage.choices(**chosen, **self._form.chosen)

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
                    say(f"{self._name}: {number + 1} looks, {self.kills} kills in {self.runs} runs of the follower")
        finally:
            self._ended.set()
            following.join()
        assert not self._problems, self._problems
        assert run(self._choices) == 0 and self._stage.verified().findings == []

    def _write(self) -> None:
        for partition in range(PARTITIONS):
            written: list[tuple[str, int | None]] = []
            for _ in range(self._dice.randint(1, ROWS_MAX)):
                is_deletion = self._form.mode == "upsert" and self._dice.random() < 0.2
                value = None if is_deletion else self._dice.getrandbits(62)
                written.append((f"{partition}-{self._dice.randrange(50)}", value))
            self._model.written[partition] += written
            form = self._form
            self._stage.append(
                [Record(form.key(key), form.value(value), START_MS) for key, value in written], partition
            )

    def _compare(self) -> None:
        begun = {partition: end for (_, partition), end in self._stage.ends.items()}
        found = moldau.table(self._stage.warehouse, "t", live=str(self._stage.logs))
        assert all(found.offsets[each] >= end for each, end in begun.items()), (found.offsets, begun)
        rows = found.to_table()
        places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        made = [
            self._form.row(*each) for each in zip(*(rows[name].to_pylist() for name in self._form.columns), strict=True)
        ]
        by_key = self._form.mode == "upsert"
        have = {key if by_key else place: value for place, (key, value) in zip(places, made, strict=True)}
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
