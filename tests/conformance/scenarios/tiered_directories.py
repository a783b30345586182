"""A topic in two tiers, of which the remote one is a directory: clients read both, Apache Kafka's tool the objects.

The objects of a segment are named as its files were, so that DumpLogSegments can compare records and indexes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from moldau.storage.tiered.layout import DATA_KINDS, ObjectKind, SegmentObject, parse_key
from tests.conformance.brokers import Broker
from tests.conformance.client import Client
from tests.conformance.outcome import Unavailable
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop, expect_files_accepted
from tests.conformance.session import expect, same_records
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Missing
from tests.conformance.transactor import Transactor

TOPIC = "tiers"
PARTITIONS = 3
ROUNDS, RECORDS_PER_ROUND, VALUE_SIZE = 12, 300, 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
SETTINGS = (
    "remote.log.storage.system.enable=true",
    "remote.log.manager.task.interval.ms=500",
    "rlmm.config.remote.log.metadata.topic.num.partitions=3",
    "rlmm.config.remote.log.metadata.topic.replication.factor=1",
    "log.initial.task.delay.ms=500",
    "log.retention.check.interval.ms=500",
    "log.segment.delete.delay.ms=0",
)
COPIED_S = 60.0
TIMES = ("earliest", "latest", "earliest-local", "latest-tiered")
CLIENTS = ("java", "confluent", "aiokafka", "kafka-python")


def records(round_number: int) -> list[Record]:
    return [
        Record(
            value=f"{round_number}-{number}".encode().ljust(VALUE_SIZE, b"."),
            key=f"key-{number}".encode(),
            timestamp_ms=1_700_000_000_000 + round_number * 1000 + number,
            partition=number % PARTITIONS,
        )
        for number in range(RECORDS_PER_ROUND)
    ]


def fill(client: Client) -> list[list[Record]]:
    """Idempotent producers in five codecs, transactions that commit and that abort; what a reader of committed records
    gets of each partition."""
    client.create_topic(TOPIC, PARTITIONS, configs=CONFIGS)
    producer = Transactor(client, "rounds", "rounds")
    held: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for number in range(ROUNDS):
        written = records(number)
        is_aborted = number % 3 == 2 and number % 2 == 1
        if number % 3 == 2:
            producer.begin()
            producer.send(TOPIC, written)
            if is_aborted:
                producer.abort()
            else:
                producer.commit()
        else:
            client.produce(TOPIC, written, codec=CODECS[number % len(CODECS)], idempotent=True)
        for record in () if is_aborted else written:
            held[record.partition].append(record)
    producer.close()
    return held


def local_segments(data: Path) -> int:
    return sum(len(list((data / f"{TOPIC}-{partition}").glob("*.log"))) for partition in range(PARTITIONS))


def objects(remote: Path) -> Iterator[tuple[Path, SegmentObject]]:
    for path in sorted(each for each in remote.rglob("*") if each.is_file()):
        found = parse_key(str(path.relative_to(remote)))
        if found is not None and found.partition.topic == TOPIC:
            yield path, found


def unpack(remote: Path, data: Path) -> int:
    """The objects under the names that their segments had in a log directory; how many segments there are."""
    count = 0
    for path, found in objects(remote):
        directory = data / f"{TOPIC}-{found.partition.partition}"
        directory.mkdir(parents=True, exist_ok=True)
        count += found.kind is ObjectKind.LOG
        if found.kind in DATA_KINDS and found.kind is not ObjectKind.LEADER_EPOCHS:
            shutil.copy(path, directory / f"{found.start_offset:020d}{found.kind.value}")
    return count


def settle(data: Path) -> None:
    """Wait until every rolled segment is only remote."""
    deadline = time.monotonic() + COPIED_S
    while local_segments(data) > PARTITIONS and time.monotonic() < deadline:
        time.sleep(0.2)
    expect(local_segments(data) == PARTITIONS, f"{local_segments(data)} segments are local still")


def ours(work: Workshop) -> Broker:
    """This checkout's broker, whose remote storage is a directory below the workshop's."""
    remote = work.directory / "remote"
    remote.mkdir()
    return work.moldau(*SETTINGS, f"moldau.tiered.storage={remote}")


def theirs(work: Workshop) -> Broker:
    """Apache Kafka with its LocalTieredStorage."""
    try:
        jars = work.toolchain.tiered_jars()
    except Missing as missing:
        raise Unavailable(str(missing)) from None
    package = "org.apache.kafka.server.log.remote.storage"
    return work.apache(
        *SETTINGS,
        f"remote.log.storage.manager.class.name={package}.LocalTieredStorage",
        f"remote.log.storage.manager.class.path={jars}/*",
        "remote.log.metadata.manager.listener.name=PLAINTEXT",
        f"rsm.config.dir={work.directory / 'remote'}",
    )


def both_tiers(work: Workshop) -> None:
    broker = ours(work)
    broker.format()
    with work.running(broker):
        with work.client("java", broker) as client:
            held = fill(client)
        settle(broker.data)
        for name in CLIENTS:
            read_both_tiers(work, name, broker, held)
        work.facts["clients that read both tiers"] = list(CLIENTS)
    unpacked = work.directory / "unpacked"
    count = unpack(work.directory / "remote", unpacked)
    expect(count > PARTITIONS * 3, f"{count} segments were copied")
    expect_files_accepted(work, unpacked)


def read_both_tiers(work: Workshop, name: str, broker: Broker, held: Sequence[Sequence[Record]]) -> None:
    with work.client(name, broker) as client:
        for partition, wanted in enumerate(held):
            read = client.consume(TOPIC, partition=partition, count=len(wanted), isolation="read_committed")
            same_records(read, list(wanted))
            expect(client.list_offsets(TOPIC, partition, "earliest") == 0, "the log begins elsewhere")


def beside_local_tiered_storage(work: Workshop) -> None:
    """Both brokers get the same history. Their segments may be cut at other offsets, as producers batch by time."""
    beside = Workshop(work.toolchain, work.ports, work.directory / "peer")
    seen: list[dict[str, list[int]]] = []
    for place, made in ((work, ours), (beside, theirs)):
        broker = made(place)
        broker.format()
        with place.running(broker):
            with place.client("java", broker) as client:
                held = fill(client)
            settle(broker.data)
            read_both_tiers(place, "java", broker, held)
            box = Toolbox(place.toolchain, broker.bootstrap, "tiers", place.directory)
            seen.append({time: offsets(box, time) for time in TIMES})
    for mine in seen:
        for local, tiered in zip(mine["earliest-local"], mine["latest-tiered"], strict=True):
            expect(0 < local == tiered + 1, f"the local log begins at {local}, remote storage ends with {tiered}")
    for time_asked in ("earliest", "latest"):
        expect(seen[0][time_asked] == seen[1][time_asked], f"{time_asked}: {seen[0]}, Apache Kafka: {seen[1]}")
    work.facts["both tiers end where they do in Apache Kafka"] = True


def offsets(box: Toolbox, time_asked: str) -> list[int]:
    """Of each partition, as `kafka-get-offsets --time` prints them."""
    lines = box.run("kafka-get-offsets", "--topic", TOPIC, "--time", time_asked).split()
    return [int(line.rpartition(":")[2]) for line in sorted(lines)]


TIERED_DIRECTORY_SCENARIOS = (
    DirectoryScenario(
        "directory-tiered",
        "a topic in two tiers: four clients read it whole, and DumpLogSegments accepts every object",
        both_tiers,
    ),
    DirectoryScenario(
        "directory-tiered-peer",
        "the same history in Apache Kafka with LocalTieredStorage: the same committed records, and both tiers meet",
        beside_local_tiered_storage,
    ),
)
