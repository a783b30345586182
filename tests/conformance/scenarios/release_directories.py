"""Scenarios of a data directory that another release of Apache Kafka wrote: our readers and our broker take it over."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

import moldau
from tests.conformance.brokers import Broker
from tests.conformance.record import Record
from tests.conformance.scenarios import directories as plain
from tests.conformance.scenarios import transaction_directories as transactional
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect, same_records
from tests.conformance.toolbox import Toolbox

OF_ZOOKEEPER: Final = "2.8.2"
OF_KRAFT: Final = ("3.9.2", "4.1.2", "4.4.0")
REFUSED_S: Final = 60


def rows_of(data: Path, topic: str) -> list[Record]:
    """What the reader of tables finds in the files, in the order of partitions and offsets."""
    columns = ["partition", "offset", "key", "value", "headers", "timestamp"]
    table = moldau.read_topic(str(data), topic, columns=columns).read_all()
    table = table.set_column(
        columns.index("timestamp"), "timestamp", table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    )
    return [
        Record(
            value=row["value"],
            key=row["key"],
            headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
            timestamp_ms=row["timestamp"],
            partition=row["partition"],
            offset=row["offset"],
        )
        for row in table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
    ]


def expect_rows(data: Path, held: Sequence[Sequence[Record]], committed: Sequence[Record]) -> None:
    """The files read without a broker: all records, and those of committed transactions alone."""
    same_records(rows_of(data, plain.TOPIC), [record for records in held for record in records])
    by_partition = sorted(committed, key=lambda record: record.partition)
    same_records(rows_of(data, transactional.TOPIC), by_partition, timed=False)


def filled(work: Workshop, theirs: Broker) -> tuple[list[list[Record]], list[Record]]:
    theirs.format()
    with work.running(theirs), work.client("confluent", theirs) as client:
        held = plain.fill(client)
        committed = transactional.fill(client)
    plain.expect_rolled_segments(theirs.data)
    return held, committed


def served(version: str, work: Workshop) -> None:
    theirs = work.release(version)
    held, committed = filled(work, theirs)
    expect_rows(theirs.data, held, committed)
    ours = work.moldau()
    if version < "4":
        expect_refused(ours, "upgrade --release-version 4.0")
        later = work.apache()
        with work.running(later):
            box = Toolbox(work.toolchain, later.bootstrap, "upgrade", work.directory)
            box.run("kafka-features", "upgrade", "--release-version", "4.0")
        expect_rows(theirs.data, held, committed)
    with work.running(ours), work.client("java", ours) as client:
        plain.read_all(client, held)
        transactional.go_on(client, committed)
        plain.still_writable(client)
    plain.expect_files_accepted(work, ours.data)


def read_and_refused(version: str, work: Workshop) -> None:
    """A directory of the ZooKeeper era has no metadata log: its files are read, and a start says what to do."""
    theirs = work.release(version)
    held, committed = filled(work, theirs)
    expect_rows(theirs.data, held, committed)
    expect_refused(work.moldau(), "ZooKeeper")


def expect_refused(ours: Broker, remedy: str) -> None:
    done = subprocess.run(ours.serve_command(), capture_output=True, text=True, timeout=REFUSED_S)
    said = done.stdout + done.stderr
    expect(done.returncode == 1 and remedy in said, f"a start ended with {done.returncode} and said {said[-600:]}")


RELEASE_DIRECTORY_SCENARIOS: Final = (
    DirectoryScenario(
        f"directory-of-{OF_ZOOKEEPER}",
        "Apache Kafka with ZooKeeper wrote five codecs and transactions: the files are read, a start is refused",
        partial(read_and_refused, OF_ZOOKEEPER),
    ),
    *(
        DirectoryScenario(
            f"directory-of-{version}",
            "Apache Kafka of this release wrote five codecs and transactions: the files are read, and served on",
            partial(served, version),
        )
        for version in OF_KRAFT
    ),
)
