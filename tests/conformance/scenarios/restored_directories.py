"""Scenarios of a backup that is taken of the directory of one broker while it runs, and restored for the other.

A transaction is open when the backup is taken. The restored cluster has it aborted, and goes on: it reads what was
committed, groups go on at their offsets, the producers of the old cluster's transactional ids write.
"""

from __future__ import annotations

import subprocess
import sys

from tests.conformance.brokers import Broker
from tests.conformance.client import Client
from tests.conformance.outcome import Failed
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop, expect_files_accepted
from tests.conformance.scenarios.transaction_directories import (
    GROUP,
    LEFT_OPEN,
    SOURCE,
    STEP,
    TOPIC,
    fill,
    read_committed,
)
from tests.conformance.scenarios.transactions import PARTITIONS, records_of
from tests.conformance.session import expect
from tests.conformance.transactor import Pipeline, Transactor

COMMAND_S = 120


def moldau(*words: str) -> None:
    """Run a command of Moldau's. Raises `Failed`."""
    command = [sys.executable, "-m", "moldau", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    if done.returncode != 0:
        raise Failed(f"moldau {words[0]}: {done.stderr[-600:]}")


def go_on(client: Client, committed: list[Record]) -> None:
    for partition in range(PARTITIONS):
        latest, stable = (client.list_offsets(TOPIC, partition, at) for at in ("latest", "last-stable"))
        expect(latest == stable, f"partition {partition} is stable up to {stable}, and ends at {latest}")
    left = client.call("describe_transaction", id=LEFT_OPEN)
    assert isinstance(left, dict)
    expect(left["state"] == "CompleteAbort", f"the transaction that was open is {left}")
    read_committed(client, committed)
    offsets = sum(client.fetch_offsets(GROUP).values())
    expect(offsets == STEP, f"the group has committed {STEP} records, its offsets say {offsets}")
    successor = Transactor(client, LEFT_OPEN, LEFT_OPEN)
    more = records_of("the restored cluster's", 9)
    successor.begin()
    successor.send(TOPIC, more)
    successor.commit()
    pipeline = Pipeline(client, "third", "pipeline", GROUP, SOURCE)
    again = pipeline.step(STEP, TOPIC, "commit")
    pipeline.close()
    read_committed(client, [*committed, *more, *again])


def restored(work: Workshop, first: Broker, second: Broker, *, by: str) -> None:
    store, place = work.directory / "store", work.directory / "restored"
    store.mkdir()
    first.format()
    with work.running(first), work.client(by, first) as client:
        committed = fill(client)
        moldau("backup", str(store), "--path", str(first.data))
    moldau("restore", str(store), "--to", str(place))
    first.data.rename(work.directory / "before")
    (place / "1").rename(second.data)
    with work.running(second), work.client("java", second) as client:
        go_on(client, committed)
    expect_files_accepted(work, second.data)


def ours_to_apache(work: Workshop) -> None:
    restored(work, work.moldau(), work.apache(), by="confluent")


def apache_to_ours(work: Workshop) -> None:
    restored(work, work.apache(), work.moldau(), by="java")


RESTORED_DIRECTORY_SCENARIOS = (
    DirectoryScenario(
        "restore-ours-to-apache",
        "a backup of our directory, restored: Apache Kafka starts, reads, commits, produces",
        ours_to_apache,
    ),
    DirectoryScenario("restore-apache-to-ours", "a backup of Apache Kafka's directory under us", apache_to_ours),
)
