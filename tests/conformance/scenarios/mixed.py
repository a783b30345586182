"""Scenarios of one cluster in which brokers of both kinds serve, under our controller or Apache Kafka's."""

from __future__ import annotations

import contextlib
import json
import re
import time

from tests.conformance.brokers import Broker
from tests.conformance.client import Client
from tests.conformance.outcome import Failed
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect, same_records
from tests.conformance.toolbox import Toolbox
from tests.conformance.trio import NODES, Trio, pairs_of

TOPIC, GROUP = "shared", "guests"
RECORDS = 10_000
RECORDS_PER_CALL = 2_500
HOST, GUEST = 1, 2
PATIENCE_S = 60
OFFSETS_TWICE = "offsets.topic.replication.factor=2"


def records_of(name: str, count: int) -> list[Record]:
    return [Record(value=f"{name} {index}".encode(), key=str(index).encode()) for index in range(count)]


def produce_all(client: Client, records: list[Record]) -> None:
    for start in range(0, len(records), RECORDS_PER_CALL):
        client.produce(TOPIC, records[start : start + RECORDS_PER_CALL], idempotent=True)


def state_of(box: Toolbox) -> tuple[int, set[int]]:
    """Leader and in-sync replicas of the one partition."""
    said = box.run("kafka-topics", "--describe", "--topic", TOPIC)
    found = re.search(r"Partition: 0\s+Leader: (\S+)\s+Replicas: \S+\s+Isr: ([\d,]*)", said)
    if found is None:
        raise Failed(f"kafka-topics does not describe the partition: {said}")
    leader = -1 if found[1] == "none" else int(found[1])
    return leader, {int(each) for each in found[2].split(",") if each}


def wait_for(box: Toolbox, leader: int, in_sync: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (state := state_of(box)) != (leader, in_sync):
        if time.monotonic() > deadline:
            raise Failed(f"leader and in-sync replicas should be {leader}, {in_sync}, and are {state}")
        time.sleep(0.5)


def reassign(box: Toolbox, replicas: list[int]) -> None:
    plan = box.directory / "plan.json"
    partition = {"topic": TOPIC, "partition": 0, "replicas": replicas}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    box.run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")


def apache_joins(work: Workshop) -> None:
    joins(work, work.moldau(OFFSETS_TWICE), work.guest())


def moldau_joins(work: Workshop) -> None:
    joins(work, work.apache(OFFSETS_TWICE), work.moldau_guest())


def joins(work: Workshop, host: Broker, guest: Broker) -> None:
    """It joins, copies what the host holds, leads, is followed by the host, coordinates and leaves."""
    host.format()
    guest.format()
    first, later, last = records_of("first", RECORDS), records_of("later", 500), records_of("last", 10)
    with work.running(host), work.client("confluent", host) as client:
        box = Toolbox(work.toolchain, host.bootstrap, "mixed", work.directory)
        box.run("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", str(HOST))
        produce_all(client, first)
        with work.running(guest), work.client("confluent", guest) as theirs:
            there = Toolbox(work.toolchain, guest.bootstrap, "mixed", work.directory)
            reassign(there, [GUEST, HOST])  # by the guest, in an envelope
            wait_for(box, HOST, {HOST, GUEST})
            there.run("kafka-leader-election", "--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
            wait_for(box, GUEST, {HOST, GUEST})
            same_records(theirs.consume(TOPIC, count=RECORDS), first, timed=False)
            produce_all(theirs, later)
            theirs.alter_offsets(GROUP, {(TOPIC, 0): RECORDS})
        wait_for(box, HOST, {HOST})
        client.produce(TOPIC, last)
        same_records(client.consume(TOPIC, count=RECORDS + 510), [*first, *later, *last], timed=False)
        found = client.fetch_offsets(GROUP)
        expect(found == {(TOPIC, 0): RECORDS}, f"the group had committed {RECORDS}, found {found}")


def three_there_and_back(work: Workshop) -> None:
    """Ours, whose quorum goes from voters of the configuration to those of its log, then Apache Kafka's, then ours."""
    pairs, written = pairs_of(work.ports), list[Record]()
    Trio("moldau", work.toolchain, pairs, work.directory).format()
    for turn, kind in enumerate(("moldau", "apache", "moldau")):
        three = Trio(kind, work.toolchain, pairs, work.directory)
        with contextlib.closing(three), work.client("confluent", three.nodes[0]) as client:
            three.start()
            box = Toolbox(work.toolchain, three.bootstrap, "mixed", work.directory)
            if turn == 0:
                client.create_topic(TOPIC, 1, replicas=NODES)
            wait_in_sync(box)
            if turn == 0:
                raise_kraft_version(box)
            more = records_of(f"turn {turn}", 1_000)
            produce_all(client, more)
            written += more
            same_records(client.consume(TOPIC, count=len(written)), written, timed=False)
            status = box.run("kafka-metadata-quorum", "describe", "--status")
            voters = re.findall(r'"id": (\d), "directoryId": "(\S{22})"', status)
            expect([each for each, _ in voters] == ["1", "2", "3"], f"three voters with their directories: {status}")


def raise_kraft_version(box: Toolbox) -> None:
    """Refused until the leader has heard from each voter who it is."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            box.run("kafka-features", "upgrade", "--feature", "kraft.version=1")
            return
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def wait_in_sync(box: Toolbox) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len((state := state_of(box))[1]) < NODES or state[0] < 0:
        if time.monotonic() > deadline:
            raise Failed(f"three replicas should be in sync, and are {state}")
        time.sleep(0.5)


MIXED_SCENARIOS = (
    DirectoryScenario(
        "mixed-apache-joins",
        "a broker of Apache Kafka joins our controller, copies 10,000 records, leads, serves a consumer, leaves",
        apache_joins,
    ),
    DirectoryScenario(
        "mixed-moldau-joins",
        "our broker joins a controller of Apache Kafka's, copies 10,000 records, leads, serves a consumer, leaves",
        moldau_joins,
    ),
    DirectoryScenario(
        "mixed-three-there-and-back",
        "three nodes of ours raise kraft.version; three of Apache Kafka's go on from there, then ours",
        three_there_and_back,
    ),
)
