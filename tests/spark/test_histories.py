"""Histories that real transactional producers have written: the rows of the data source are those of a consumer.

The consumer and the data source both read committed. The broker compacts, copies to a tiered storage, deletes, and
has two log directories. MOLDAU_TEST_HISTORIES=200 plays that many instead of a few; the tasks run without a JVM, except
in `test_rows_of_spark`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.refusals import DataLost
from tests.conformance.brokers import Moldau, Ports
from tests.support.produced_histories import (
    COLUMNS,
    PARTITIONS,
    POLICIES,
    PRODUCERS,
    SETTINGS,
    End,
    History,
    Row,
    Send,
    Writer,
    await_checkpoints,
    consumed,
    histories,
    place_of,
    row_from_columns,
    rows_of_files,
    rows_of_reader,
    segments_of,
)

pytestmark = pytest.mark.processes
EXAMPLES: Final = int(os.environ.get("MOLDAU_TEST_HISTORIES", "8"))
ATTEMPTS: Final = 20
"""How often a history is read again, because the broker changed its files meanwhile."""
SETTLED_S: Final = 30.0


class Place:
    """A broker with two log directories and a tiered storage."""

    def __init__(self, broker: Moldau, directories: Sequence[Path], tier: Path) -> None:
        self.broker = broker
        self.directories = directories
        self.tier = tier
        self._numbers = count()

    @property
    def paths(self) -> list[Path]:
        return [*self.directories, self.tier]

    def writer(self, policy: str) -> Writer:
        return Writer(self.broker.bootstrap, f"{policy}-{next(self._numbers)}", policy)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("histories")
    tier = home / "tier"
    tier.mkdir()
    broker = Moldau(home, Ports(28_400, 28_800).pair(), [*SETTINGS, f"moldau.tiered.storage={tier}"])
    directories = [broker.data, home / "data-2"]
    broker.set({"log.dirs": ",".join(map(str, directories))})
    broker.format()
    broker.start()
    yield Place(broker, directories, tier)
    broker.stop()


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories())
@pytest.mark.parametrize("read", [rows_of_files, rows_of_reader])
def test_the_rows_are_those_of_a_consumer(
    place: Place, history: History, read: Callable[[Sequence[Path], str], list[Row]]
) -> None:
    def rows(place: Place, topic: str) -> list[Row]:
        return read(place.paths, topic)

    writer = place.writer(history.policy)
    try:
        writer.play(history.steps)
        assert_same_rows(place, writer.topic, rows)
    finally:
        writer.close()
    assert_same_rows(place, writer.topic, rows)


def assert_same_rows(place: Place, topic: str, read: Callable[[Place, str], list[Row]] | None = None) -> list[Row]:
    """Read by both. The consumer reads before and after: if it sees the same, the files said the same between."""
    for _ in range(ATTEMPTS):
        before = consumed(place.broker.bootstrap, topic)
        await_checkpoints(place.directories, place.broker.bootstrap, topic)
        try:
            rows = read(place, topic) if read else rows_of_files(place.paths, topic)
        except DataLost:  # Retention has removed a file before its task opened it.
            continue
        if consumed(place.broker.bootstrap, topic) == before:
            assert rows == before
            return rows
    raise AssertionError(f"the rows of {topic} have changed in each of {ATTEMPTS} attempts")


def long_history(seed: int) -> list[Send | End]:
    """Enough for several segments of each partition; all transactions end."""
    dice = Random(seed)
    steps: list[Send | End] = []
    for _ in range(150):
        producer = dice.choice((None, *range(PRODUCERS)))
        steps.append(Send(dice.randrange(PARTITIONS), dice.randint(1, 8), producer, "lz4"))
        if dice.random() < 0.3:
            steps.append(End(dice.randrange(PRODUCERS), dice.random() < 0.6))
    return [*steps, *(End(producer, False) for producer in range(PRODUCERS))]


def is_cleaned(place: Place, topic: str) -> bool:
    """Whether the cleaner has reached the last segment of each partition."""
    points: dict[tuple[str, int], int] = {}
    for directory in place.directories:
        points |= read_offsets(LocalFiles(), str(directory), CLEANER_OFFSET_CHECKPOINT)
    return all(
        points.get((topic, partition), 0) >= segments_of(place.directories, topic, partition)[-1] > 0
        for partition in range(PARTITIONS)
    )


def is_offloaded(place: Place, topic: str) -> bool:
    """Whether each partition has only its last segment on the broker's disks."""
    return all(
        len(found := segments_of(place.directories, topic, partition)) == 1 and found[0] > 0
        for partition in range(PARTITIONS)
    )


def played(place: Place, policy: str) -> str:
    """A topic with a long history, after the broker has done what the policy asks of it."""
    writer = place.writer(policy)
    writer.play(long_history(seed=sorted(POLICIES).index(policy)))
    is_settled = {"plain": lambda *_: True, "compacted": is_cleaned, "tiered": is_offloaded}[policy]
    deadline = time.monotonic() + SETTLED_S
    while not is_settled(place, writer.topic):
        assert time.monotonic() < deadline, f"the broker has not settled {writer.topic}: {place.broker.last_lines()}"
        time.sleep(0.05)
    return writer.topic


def test_compaction_and_tiering_have_happened(place: Place) -> None:
    """The rows are compared if the cleaner and the copier have surely been, in both log directories."""
    assert all(any(each.glob("plain-*-*")) for each in place.directories)
    before = len(assert_same_rows(place, played(place, "plain")))
    topic = played(place, "compacted")
    assert 0 < len(assert_same_rows(place, topic)) < before
    topic = played(place, "tiered")
    assert_same_rows(place, topic)
    assert {row[0] for row in rows_of_files([place.tier], topic)} == set(range(PARTITIONS))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_rows_of_spark(place: Place, spark: SparkSession, policy: str) -> None:
    """The same through a session: tasks in its workers, rows through the JVM, from files and from the broker."""

    def from_files(place: Place, topic: str) -> list[Row]:
        return rows_of_spark(spark, topic, path=",".join(map(str, place.paths)), minPartitions="8")

    def from_broker(place: Place, topic: str) -> list[Row]:
        return rows_of_spark(spark, topic, **{"kafka.bootstrap.servers": place.broker.bootstrap})

    topic = played(place, policy)
    assert assert_same_rows(place, topic, from_files) == assert_same_rows(place, topic, from_broker)


def rows_of_spark(spark: SparkSession, topic: str, **options: str) -> list[Row]:
    given = {
        "subscribe": topic,
        "includeHeaders": "true",
        "columns": COLUMNS,
        "kafka.isolation.level": "read_committed",
    }
    table = spark.read.format("moldau").options(**given, **options).load().toArrow()
    return sorted(map(row_from_columns, table.to_pylist()), key=place_of)
