"""Scenarios of a data directory with transactions that one broker writes, and that the other goes on with.

The first broker leaves a transaction open. The second must know it, hold back readers of committed records, and end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.conformance.brokers import Broker
from tests.conformance.client import Client
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop, expect_files_accepted
from tests.conformance.scenarios.transactions import PARTITIONS, records_of
from tests.conformance.session import expect, same_records
from tests.conformance.transactor import Pipeline, Transactor

TOPIC, SOURCE, GROUP = "exchanged", "source", "processors"
ROUNDS, RECORDS_PER_ROUND, VALUE_SIZE = 20, 60, 4096
STEP = 30
LEFT_OPEN = "left"
TIMEOUT_MS = 900_000
"""Apache Kafka's greatest."""


def large(label: str) -> list[Record]:
    """A round that fills the partitions' segments, of 1 MiB each, after some like it."""
    return [
        Record((record.value or b"").ljust(VALUE_SIZE, b"."), record.key, partition=record.partition)
        for record in records_of(label, RECORDS_PER_ROUND)
    ]


def fill(client: Client) -> list[Record]:
    """Returns the committed records of the topic in their order; a transaction is left open."""
    client.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
    client.create_topic(SOURCE, PARTITIONS)
    committed: list[Record] = []
    producer = Transactor(client, "rounds", "rounds")
    for index in range(ROUNDS):
        producer.begin()
        records = large(f"round {index}")
        producer.send(TOPIC, records)
        if index % 2 == 0:
            producer.commit()
            committed += records
        else:
            producer.abort()
    producer.close()
    client.produce(SOURCE, records_of("source", 2 * STEP))
    for name, end in (("first", "commit"), ("second", "abort")):
        pipeline = Pipeline(client, name, "pipeline", GROUP, SOURCE)
        read = pipeline.step(STEP, TOPIC, end)
        committed += read if end == "commit" else []
        pipeline.close()
    left = Transactor(client, LEFT_OPEN, LEFT_OPEN, timeout_ms=TIMEOUT_MS)
    left.begin()
    left.send(TOPIC, records_of("never committed", 9))
    return committed


def go_on(client: Client, committed: list[Record]) -> None:
    for partition in range(PARTITIONS):
        latest, stable = (client.list_offsets(TOPIC, partition, at) for at in ("latest", "last-stable"))
        expect(latest - stable == 3, f"partition {partition} is stable up to {stable}, and ends at {latest}")
    left = client.call("describe_transaction", id=LEFT_OPEN)
    assert isinstance(left, dict)
    expect(left["state"] == "Ongoing", f"the transaction that was left open is {left}")
    successor = Transactor(client, LEFT_OPEN, LEFT_OPEN)
    more = records_of("the other broker's", 9)
    successor.begin()
    successor.send(TOPIC, more)
    successor.commit()
    read_committed(client, [*committed, *more])
    offsets = sum(client.fetch_offsets(GROUP).values())
    expect(offsets == STEP, f"the group has committed {STEP} records, its offsets say {offsets}")
    pipeline = Pipeline(client, "third", "pipeline", GROUP, SOURCE)
    again = pipeline.step(STEP, TOPIC, "commit")
    pipeline.close()
    read_committed(client, [*committed, *more, *again])


def read_committed(client: Client, wanted: Sequence[Record]) -> None:
    for partition in range(PARTITIONS):
        here = [record for record in wanted if record.partition == partition]
        read = client.consume(TOPIC, partition=partition, count=len(here), isolation="read_committed")
        same_records(read, here, timed=False)


def expect_indexed(data: Path) -> None:
    """Transactions were aborted in more than one segment."""
    for partition in range(PARTITIONS):
        sizes = [file.stat().st_size for file in (data / f"{TOPIC}-{partition}").glob("*.txnindex")]
        expect(len([size for size in sizes if size]) > 1, f"the transaction indexes have the sizes {sizes}")


def exchanged(work: Workshop, first: Broker, second: Broker, *, by: str) -> None:
    first.format()
    with work.running(first), work.client(by, first) as client:
        committed = fill(client)
    expect_indexed(first.data)
    expect_files_accepted(work, first.data)
    with work.running(second), work.client("java", second) as client:
        go_on(client, committed)
    expect_files_accepted(work, second.data)


def ours_to_apache(work: Workshop) -> None:
    exchanged(work, work.moldau(), work.apache(), by="confluent")


def apache_to_ours(work: Workshop) -> None:
    exchanged(work, work.apache(), work.moldau(), by="java")


def apache_to_apache(work: Workshop) -> None:
    """The control: what fails here is no fault of Moldau's."""
    exchanged(work, work.apache(), work.apache(), by="java")


TRANSACTION_DIRECTORY_SCENARIOS = (
    DirectoryScenario(
        "directory-txn-ours-to-apache",
        "committed, aborted and open transactions, with groups' offsets: Apache Kafka goes on with our directory",
        ours_to_apache,
    ),
    DirectoryScenario("directory-txn-apache-to-ours", "the same the other way round", apache_to_ours),
    DirectoryScenario("directory-txn-control", "Apache Kafka on its own directory", apache_to_apache, side="apache"),
)
