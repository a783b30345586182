"""Scenarios of a compacted topic: one directory is cleaned by both brokers, and each goes on with what the other left.

The directory is written while the cleaner is off. Both brokers then clean a copy of it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_reader import records_of
from tests.conformance.brokers import Broker
from tests.conformance.client import Client
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop, expect_files_accepted
from tests.conformance.session import expect
from tests.conformance.transactor import Transactor

TOPIC = "table"
PARTITIONS = 3
ROUNDS, KEYS, VALUE_SIZE = 12, 400, 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
OFF = "log.cleaner.enable=false"
EAGER = ("log.cleaner.backoff.ms=500", "log.cleaner.enable=true")
CLEANED_S = 60.0
ALL, WAIT_S = 1_000_000, 4
"""More records than there are, and how long to wait for the next one."""
CHECKPOINT = "cleaner-offset-checkpoint"


class Kept(NamedTuple):
    """A batch that is left after compaction, and what of it must not depend on the broker that cleaned."""

    base_offset: int
    last_offset: int
    offsets: tuple[int, ...]
    attributes: int
    producer: tuple[int, int, int]
    leader_epoch: int
    max_timestamp: int


def value_of(round_number: int, number: int) -> bytes:
    return f"{round_number}-{number}".encode().ljust(VALUE_SIZE, b".")


def records(round_number: int) -> list[Record]:
    """Each round writes a third of the keys again, and deletes some of them."""
    return [
        Record(
            value=None if (number + round_number) % 17 == 0 else value_of(round_number, number),
            key=f"key-{number}".encode(),
            headers=(("round", str(round_number).encode()),) if number % 5 == 0 else (),
            timestamp_ms=1_700_000_000_000 + round_number * 1000 + number,
            partition=number % PARTITIONS,
        )
        for number in range(KEYS * PARTITIONS)
        if (number // PARTITIONS + round_number) % 3
    ]


def fill(client: Client) -> None:
    """Idempotent producers in five codecs, transactions that commit and that abort."""
    producer = Transactor(client, "rounds", "rounds")
    for number in range(ROUNDS):
        if number % 3 == 2:
            producer.begin()
            producer.send(TOPIC, records(number))
            if number % 2:
                producer.abort()
            else:
                producer.commit()
        else:
            client.produce(TOPIC, records(number), codec=CODECS[number % len(CODECS)], idempotent=True)
    producer.close()
    client.produce(TOPIC, records(ROUNDS)[:PARTITIONS], codec="none", idempotent=True)


def cleaned_offsets(data: Path) -> dict[str, int]:
    """By partition: up to which offset the log was cleaned, as the checkpoint says."""
    path = data / CHECKPOINT
    lines = path.read_text("utf-8").splitlines()[2:] if path.exists() else []
    return {
        f"{topic}-{partition}": int(offset)
        for topic, partition, offset in (line.split() for line in lines)
        if topic == TOPIC and int(offset) > 0
    }


def clean(work: Workshop, broker: Broker) -> dict[str, int]:
    """Let a broker clean the directory, until all partitions are."""
    with work.running(broker):
        deadline = time.monotonic() + CLEANED_S
        while len(cleaned_offsets(broker.data)) < PARTITIONS and time.monotonic() < deadline:
            time.sleep(0.2)
    found = cleaned_offsets(broker.data)
    expect(len(found) == PARTITIONS, f"{broker.name} has cleaned {found}")
    return found


def kept(directory: Path) -> Iterator[Kept]:
    for segment in sorted(directory.glob("*.log")):
        stored = segment.read_bytes()
        for position, header in iterate_batches(stored):
            offsets = tuple(record.offset for record in records_of(stored, position, header))
            producer = (header.producer_id, header.producer_epoch, header.base_sequence)
            yield Kept(
                header.base_offset,
                header.last_offset,
                offsets,
                header.attributes,
                producer,
                header.partition_leader_epoch,
                header.max_timestamp,
            )


def table(client: Client) -> dict[tuple[int, bytes | None], bytes | None]:
    """The last committed value of each key."""
    latest: dict[tuple[int, bytes | None], bytes | None] = {}
    for partition in range(PARTITIONS):
        read = client.consume(TOPIC, partition=partition, count=ALL, isolation="read_committed", wait_s=WAIT_S)
        for record in read:
            latest[partition, record.key] = record.value
    return {key: value for key, value in latest.items() if value is not None}


def table_of(work: Workshop, broker: Broker) -> dict[tuple[int, bytes | None], bytes | None]:
    with work.running(broker), work.client("java", broker) as client:
        return table(client)


def same_survivors(work: Workshop) -> None:
    theirs = work.apache(OFF)
    theirs.format()
    with work.running(theirs), work.client("java", theirs) as client:
        client.create_topic(TOPIC, PARTITIONS, configs=CONFIGS)
        fill(client)
        wanted = table(client)
    data, before = theirs.data, work.directory / "before"
    shutil.copytree(data, before)
    by_apache = clean(work, work.apache(*EAGER))
    apache_cleaned = work.directory / "cleaned-by-apache"
    data.rename(apache_cleaned)
    before.rename(data)
    by_us = clean(work, work.moldau(*EAGER))
    expect(by_us == by_apache, f"cleaned up to {by_us} here and to {by_apache} by Apache Kafka")
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        ours, others = list(kept(data / name)), list(kept(apache_cleaned / name))
        different = [pair for pair in zip(ours, others, strict=False) if pair[0] != pair[1]]
        expect(not different, f"{name}: the batch {different[:1]} differs")
        expect(len(ours) == len(others), f"{name}: {len(ours)} batches here, {len(others)} of Apache Kafka")
    expect_files_accepted(work, data)
    work.facts["tables are equal where Apache Kafka reads our directory"] = table_of(work, work.apache(OFF)) == wanted
    shutil.rmtree(data)
    apache_cleaned.rename(data)
    work.facts["tables are equal where we read Apache Kafka's"] = table_of(work, work.moldau(OFF)) == wanted
    expect(all(work.facts[fact] for fact in work.facts if fact.startswith("tables")), f"{work.facts}")


COMPACTED_DIRECTORY_SCENARIOS = (
    DirectoryScenario(
        "directory-compacted",
        "one history cleaned by both: the same batches and offsets are left, and each reads what the other left",
        same_survivors,
    ),
)
