"""Scenarios of a data directory that one broker writes and the other goes on with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moldau.protocol.record_builder import Record as Stored
from tests.conformance.brokers import Apache, Broker, Guest, Moldau, MoldauGuest, Ports, Release, ZooKeeperRelease
from tests.conformance.client import Client
from tests.conformance.clients import driver_of
from tests.conformance.outcome import Facts, Failed, Unavailable
from tests.conformance.record import Record
from tests.conformance.scenarios.stored import codecs_stored
from tests.conformance.session import expect, same_records
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Missing, Toolchain
from tests.support.old_messages import old_segment

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
RECORDS_PER_CODEC = 20_000
RECORDS_PER_CALL = 5_000
TOPIC, GROUP = "exchange", "readers"
FIRST_TIMESTAMP_MS = 1_700_000_000_000
COMMITTED = 1_234
OLD_TOPIC = "aged"

# What DumpLogSegments prints about a file that it does not accept, while it still ends with status 0.
COMPLAINTS = ("isvalid: false", "Mismatches in", "Non-consecutive offsets", "mismatch", "out of order", "Exception")

DECODERS = {
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
}


class Workshop:
    """Starts brokers over one directory, and clients against them."""

    def __init__(self, toolchain: Toolchain, ports: Ports, directory: Path) -> None:
        self.facts: Facts = {}
        self.toolchain = toolchain
        self.ports = ports
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        # The quorum's own log names the controller's address: whoever opens the directory listens there.
        self._port = ports.pair()
        self._ports = ports

    def moldau(self, *extra: str) -> Broker:
        return Moldau(self.directory, self._port, extra)

    def apache(self, *extra: str) -> Broker:
        try:
            return Apache(self.directory, self._port, self.toolchain, extra)
        except Missing as missing:
            raise Unavailable(str(missing)) from None

    def release(self, version: str) -> Broker:
        """Apache Kafka of another version."""
        kind = ZooKeeperRelease if version < "3" else Release
        try:
            return kind(self.directory, self._port, self.toolchain, version)
        except Missing as missing:
            raise Unavailable(str(missing)) from None

    def guest(self) -> Broker:
        """A broker of Apache Kafka's in the cluster whose controller listens beside our broker."""
        try:
            return Guest(self.directory / "guest", self._ports.pair(), self._port + 1, self.toolchain)
        except Missing as missing:
            raise Unavailable(str(missing)) from None

    def moldau_guest(self) -> Broker:
        """A broker of ours in the cluster whose controller listens beside another's broker."""
        return MoldauGuest(self.directory / "guest", self._ports.pair(), self._port + 1)

    @contextmanager
    def running(self, broker: Broker) -> Iterator[Broker]:
        broker.start()
        try:
            yield broker
        except Failed as failed:
            complaints = broker.complaints()[-3:]
            raise Failed(f"{failed}; the log of {broker.name}: {complaints}") from None
        finally:
            status = broker.stop()
            self.facts[f"{broker.name} ended with status"] = status

    @contextmanager
    def client(self, name: str, broker: Broker) -> Iterator[Client]:
        try:
            client = driver_of(name, self.toolchain, broker.bootstrap, self.directory / f"{name}.log")
        except Missing as missing:
            raise Unavailable(str(missing)) from None
        try:
            yield client
        finally:
            client.close()


def written(codec: str) -> list[Record]:
    """Half-compressible values, so that every codec fills several segments."""
    records = []
    for index in range(RECORDS_PER_CODEC):
        mark = f"{codec}-{index}"
        noise = hashlib.sha256(mark.encode()).hexdigest() * 3
        records.append(
            Record(
                value=None if index % 997 == 0 else f"{mark} {noise}".encode(),
                key=None if index % 3 == 0 else mark.encode(),
                headers=(("index", str(index).encode()),) if index % 5 == 0 else (),
                timestamp_ms=FIRST_TIMESTAMP_MS + index,
                partition=index % PARTITIONS,
            )
        )
    return records


def fill(client: Client) -> list[list[Record]]:
    """Writes the topic in five codecs, and gives what each partition now holds in order."""
    client.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
    held: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for codec in CODECS:
        records = written(codec)
        for start in range(0, len(records), RECORDS_PER_CALL):
            client.produce(TOPIC, records[start : start + RECORDS_PER_CALL], codec=codec, idempotent=True)
        for record in records:
            held[record.partition].append(record)
    client.alter_offsets(GROUP, {(TOPIC, 0): COMMITTED})
    return held


def read_all(client: Client, held: Sequence[Sequence[Record]]) -> None:
    for partition, records in enumerate(held):
        read = client.consume(TOPIC, partition=partition, count=len(records))
        same_records(read, list(records))
        expect(client.list_offsets(TOPIC, partition, "latest") == len(records), "the log ends elsewhere")
    found = client.fetch_offsets(GROUP)
    expect(found == {(TOPIC, 0): COMMITTED}, f"the group had committed {COMMITTED}, found {found}")


def still_writable(client: Client) -> None:
    for codec in CODECS:
        client.produce(TOPIC, [Record(f"after {codec}".encode())], codec=codec)
    end = client.list_offsets(TOPIC, 0, "latest")
    read = client.consume(TOPIC, offset=end - len(CODECS), count=len(CODECS))
    same_records(read, [Record(f"after {codec}".encode()) for codec in CODECS], timed=False)


def expect_rolled_segments(data: Path) -> None:
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        segments = len(list((data / name).glob("*.log")))
        expect(segments >= 3, f"{name} has {segments} segments: they have not rolled")
        stored = codecs_stored(data / name)
        expect(stored == set(CODECS), f"{name} holds the codecs {sorted(stored)}")


def expect_files_accepted(work: Workshop, data: Path) -> None:
    """DumpLogSegments reads every file of every partition, and complains about none."""
    box = Toolbox(work.toolchain, "", "dump", work.directory)
    dumped = 0
    for directory in sorted(path for path in data.iterdir() if path.is_dir()):
        kinds = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*.checkpoint")
        files = sorted(str(file) for kind in kinds for file in directory.glob(kind))
        if not files:
            continue
        decoder = [word for topic, word in DECODERS.items() if directory.name.startswith(f"{topic}-")]
        output = box.run_offline("kafka-dump-log", "--files", ",".join(files), "--deep-iteration", *decoder)
        bad = [line for line in output.splitlines() if any(complaint in line for complaint in COMPLAINTS)]
        expect(not bad, f"DumpLogSegments over {directory.name}: {bad[:3]}")
        dumped += len(files)
    work.facts["files accepted"] = dumped > PARTITIONS * 9


def ours_to_apache(work: Workshop) -> None:
    ours = work.moldau()
    ours.format()
    with work.running(ours), work.client("confluent", ours) as client:
        held = fill(client)
    expect((ours.data / ".kafka_cleanshutdown").exists(), "a clean stop left no .kafka_cleanshutdown")
    expect_rolled_segments(ours.data)
    expect_files_accepted(work, ours.data)
    theirs = work.apache()
    with work.running(theirs), work.client("java", theirs) as client:
        read_all(client, held)
        still_writable(client)


def apache_to_ours(work: Workshop) -> None:
    theirs = work.apache()
    theirs.format()
    with work.running(theirs), work.client("confluent", theirs) as client:
        held = fill(client)
    expect_rolled_segments(theirs.data)
    ours = work.moldau()
    with work.running(ours), work.client("confluent", ours) as client:
        read_all(client, held)
        still_writable(client)
    expect_files_accepted(work, ours.data)


def apache_to_apache(work: Workshop) -> None:
    """The control: what fails here is no fault of Moldau's."""
    theirs = work.apache()
    theirs.format()
    with work.running(theirs), work.client("confluent", theirs) as client:
        held = fill(client)
    expect_rolled_segments(theirs.data)
    expect_files_accepted(work, theirs.data)
    with work.running(theirs), work.client("java", theirs) as client:
        read_all(client, held)
        still_writable(client)


def put_old_segments(directory: Path) -> list[Stored]:
    """Replaces the files of an empty partition by two segments of messages of formats 0 and 1, plain and compressed."""
    for path in directory.glob("0*"):
        path.unlink()
    held: list[Stored] = []
    for _ in range(2):
        data, records = old_segment(len(held))
        (directory / f"{len(held):020}.log").write_bytes(data)
        held += records
    return held


def seen_of(client: Client, held: Sequence[Stored]) -> dict[str, object]:
    """What a client sees of the old segments: all records, those from each fifth offset on, the offsets of times."""
    seen: dict[str, object] = {"end": client.list_offsets(OLD_TOPIC, 0, "latest")}
    for offset in range(0, len(held), 5):
        read = client.consume(OLD_TOPIC, offset=offset, count=len(held) - offset)
        pairs = [(record.key, record.value) for record in read]
        expect(pairs == [(each.key, each.value) for each in held[offset:]], f"from offset {offset} on: {pairs[:2]}")
        seen[f"times from {offset}"] = [record.timestamp_ms for record in read]
    for each in held[len(held) // 2 :: 7]:
        seen[f"offset at {each.timestamp}"] = client.list_offsets(OLD_TOPIC, 0, each.timestamp)
    return seen


def old_formats(work: Workshop) -> None:
    ours = work.moldau()
    ours.format()
    with work.running(ours), work.client("confluent", ours) as client:
        client.create_topic(OLD_TOPIC, 1, configs={"retention.ms": "-1"})
    directory = ours.data / f"{OLD_TOPIC}-0"
    held = put_old_segments(directory)
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    seen: list[dict[str, object]] = []
    for broker in (ours, work.apache()):
        with work.running(broker):
            for name in ("confluent", "java"):
                with work.client(name, broker) as client:
                    seen.append(seen_of(client, held))
        after = {path.name: path.read_bytes() for path in directory.glob("*.log")}
        expect(all(after[name].startswith(data) for name, data in before.items()), f"{broker.name} changed the bytes")
    expect(seen[:2] == seen[2:], f"the two brokers show {seen[:2]} and {seen[2:]}")
    work.facts["offsets seen"] = len(held)


@dataclass(frozen=True, slots=True)
class DirectoryScenario:
    name: str
    demands: str
    run: Callable[[Workshop], None]
    side: str = "moldau"


DIRECTORY_SCENARIOS = (
    DirectoryScenario(
        "directory-ours-to-apache",
        "100,000 records in five codecs and rolled segments: Apache Kafka starts on our directory and reads them all",
        ours_to_apache,
    ),
    DirectoryScenario(
        "directory-apache-to-ours",
        "the same the other way round",
        apache_to_ours,
    ),
    DirectoryScenario(
        "directory-old-formats",
        "segments of message formats 0 and 1: both brokers show the same records, times, offsets, and change no byte",
        old_formats,
    ),
    DirectoryScenario("directory-control", "Apache Kafka on its own directory", apache_to_apache, side="apache"),
)
