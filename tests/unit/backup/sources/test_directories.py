"""A backup of log directories: of a whole node on a simulated host, while it serves, cleans and deletes."""

from __future__ import annotations

import asyncio

import pytest

from moldau.backup.manifest import BackupManifest
from moldau.backup.reading import read_metadata
from moldau.backup.sources import directories
from moldau.backup.sources.directories import DirectoryLog, DirectorySource
from moldau.backup.sources.order import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, listing_rounds_of
from moldau.backup.taking import take_backup
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.record_frame import encode_record
from moldau.kraft.snapshot.batches import load_snapshot, snapshot_batches
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.metadata import FeatureLevelRecord, TopicRecord
from moldau.storage.files.memory_files import MemoryFiles
from moldau.storage.files.port import FileSystem
from moldau.tables.refusals import Refused
from moldau.testing.simulation.storage import SimulatedBucket
from tests.support.node import Client, Node, batch, serve_and
from tests.unit.backup.logs import restored, shell_of, store_of

NOW_MS = 1_795_990_000_000
SETTLED_S = 6
"""The high watermarks are written down every five seconds."""


def source_of(node: Node) -> DirectorySource:
    return DirectorySource(node.broker.environment.fs, ["/data"], lambda: NOW_MS)


async def taken_of(node: Node, bucket: SimulatedBucket) -> BackupManifest:
    return (await take_backup(store_of(bucket), source_of(node), shell_of())).manifest


def read(bucket: SimulatedBucket, manifest: BackupManifest) -> dict[str, list[bytes]]:
    """The batches of a backup, read outside of the simulated world."""
    return restored(bucket, manifest)


async def fetched(client: Client, topic: str, partition: int = 0) -> bytes:
    """The log as a consumer gets it: the stored bytes."""
    answer = await client.fetch(topic, partition=partition)
    assert isinstance(answer.records, bytes | bytearray | memoryview)
    return bytes(answer.records)


def test_the_bytes_of_a_backup_are_those_that_a_consumer_gets() -> None:
    bucket, told = SimulatedBucket(), dict[str, bytes]()
    manifests: list[BackupManifest] = []

    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("orders", 2, retention_ms=123456)
        for number in range(20):
            await client.produce("orders", batch(f"a{number}", "b"), partition=number % 2)
        await asyncio.sleep(SETTLED_S)
        manifests.append(await taken_of(node, bucket))
        for partition in range(2):
            told[f"orders-{partition}"] = await fetched(client, "orders", partition)
        await client.produce("orders", batch("later"))
        manifests.append(await taken_of(node, bucket))
        told["later"] = await fetched(client, "orders")
        assert manifests[0].topics[0].topic_id == topic_id

    serve_and(story)
    first, second = manifests
    assert {key: b"".join(each) for key, each in read(bucket, first).items()} == {
        key: told[key] for key in ("orders-0", "orders-1")
    }
    assert b"".join(read(bucket, second)["orders-0"]) == told["later"] != told["orders-0"]
    data = asyncio.run(read_metadata(store_of(bucket).storage, second))
    image = load_snapshot(data, SnapshotId(second.metadata.end_offset, second.metadata.epoch)).replay.image
    topic = image.topics.by_name("orders")
    assert topic is not None and topic.id == first.topics[0].topic_id and len(topic.partitions) == 2
    assert any("123456" in str(each) for each in image.snapshot_records())


def test_a_node_that_was_killed_has_all_of_its_only_replicas() -> None:
    """The checkpoint of the high watermarks is older than the log; what a client was told is in the backup."""
    bucket, manifests = SimulatedBucket(), list[BackupManifest]()

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders", flush_messages=1)
        await client.produce("orders", batch("a"))
        await asyncio.sleep(SETTLED_S)
        for _ in range(3):
            assert (await client.produce("orders", batch("b"))).error_code == 0
        source = source_of(node)
        node.host.kill()
        manifests.append((await take_backup(store_of(bucket), source, shell_of())).manifest)

    serve_and(story)
    assert manifests[0].topics[0].partitions[0].end_offset == 4


def metadata_batch(offset: int, epoch: int, name: str) -> bytes:
    records = [FeatureLevelRecord(name="metadata.version", feature_level=30)] if not offset else []
    values = [*records, TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\0"))]
    encoded = [Record(None, encode_record(each, 0), 5_000) for each in values]
    return build_batch(encoded, base_offset=offset, partition_leader_epoch=epoch)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_the_metadata_is_that_of_the_newest_epoch(has_snapshot: bool) -> None:
    """A controller that led epoch 1 and was cut off has the longer log: two topics that were never committed."""
    files = MemoryFiles(lambda: 0)
    common = metadata_batch(0, 1, "both")
    logs = {
        "/old": [common, *(metadata_batch(offset, 1, f"lost{offset}") for offset in (2, 3))],
        "/new": [common, metadata_batch(2, 2, "kept")],
    }
    for path, batches in logs.items():
        directory = f"{path}/__cluster_metadata-0"
        files.make_directories(directory)
        for each in batches[:1] if has_snapshot and path == "/new" else batches:
            file = files.open(f"{directory}/{0:020d}.log", create=True)
            file.append([each])
            file.close()
    if has_snapshot:
        image = directories.read_metadata(files, ["/new"]).image
        records = [*image.snapshot_records(), TopicRecord(name="kept", topic_id=b"kept".ljust(16, b"\0"))]
        parts = snapshot_batches(
            records, QuorumDescription(), metadata_version=30, epoch=2, last_contained_ms=0, now_ms=0
        )
        file = files.open(f"/new/__cluster_metadata-0/{SnapshotId(3, 2).file_name}", create=True)
        file.append([*parts])
        file.close()
    metadata = directories.read_metadata(files, list(logs))
    assert sorted(each.name for each in metadata.image.topics.by_id.values()) == ["both", "kept"]
    assert (metadata.epoch, metadata.end_offset) == (2, 3)


def test_a_log_is_read_to_its_end_while_it_is_cleaned_and_deleted() -> None:
    """Between two reads the node rolls, cleans and deletes segments: no batch is read twice or left out."""
    outcomes = []

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create(
            "t",
            cleanup_policy="compact",
            segment_ms=1_000,
            message_timestamp_type="LogAppendTime",
            min_cleanable_dirty_ratio=0.01,
        )
        for number in range(60):
            await client.produce("t", batch(f"k{number % 7}", f"k{number % 5}"))
            await asyncio.sleep(0.5)
        (log,) = [each for each in source_of(node).list_log_ends().logs if each.key.topic == "t"]
        reader, offset, taken, seen = log.open_reader(), 0, 0, list[int]()
        while data := reader.read(offset, taken):
            header = parse_header(data, 0)
            seen.append(header.base_offset)
            offset, taken = header.next_offset, header.size
            await asyncio.sleep(2)  # The cleaner runs meanwhile.
        reader.close()
        assert seen == sorted(set(seen)) and offset == log.end_offset
        outcomes.append(len(seen))

    serve_and(story, log_cleaner_backoff_ms=500, log_retention_check_interval_ms=1_000)
    assert outcomes and outcomes[0] < 60


def test_a_backup_of_a_node_outlives_the_deletion_of_a_topic() -> None:
    bucket, manifests = SimulatedBucket(), list[BackupManifest]()

    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("kept", "trial"):
            await client.create(name)
            await client.produce(name, batch("a"))
        await asyncio.sleep(SETTLED_S)
        source = source_of(node)
        first = source.list_log_ends()
        gone = DeleteTopicState(name="trial", topic_id=bytes(16))
        await client.ask(DeleteTopicsRequest(topics=[gone], topic_names=["trial"], timeout_ms=9_000), 6)
        await asyncio.sleep(SETTLED_S)
        ends = [first]
        source.list_log_ends = lambda: ends.pop() if ends else source_of(node).list_log_ends()  # type: ignore[method-assign]
        manifests.append((await take_backup(store_of(bucket), source, shell_of())).manifest)

    serve_and(story, file_delete_delay_ms=1_000)
    assert read(bucket, manifests[0]).keys() == {"kept-0"}


def test_an_epoch_agrees_as_far_as_it_reaches() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for _ in range(3):
            await client.produce("t", batch("a"))
        (log,) = source_of(node).list_log_ends().logs
        assert isinstance(log, DirectoryLog) and log.place == "/data/t-0"
        assert (
            log.has_epoch_up_to(0, 3)
            and log.has_epoch_up_to(0, 0)
            and not log.has_epoch_up_to(0, 4)
            and not log.has_epoch_up_to(1, 1)
            and not log.has_epoch_up_to(-1, 0)
        )

    serve_and(story)


def test_what_is_missing_or_damaged_is_refused() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        fs: FileSystem = node.broker.environment.fs
        await client.create("orders", 2)
        await client.produce("orders", batch("a"))
        source = source_of(node)
        node.host.kill()
        fs.rename("/data/orders-1", "/data/orders-1.0123456789abcdef0123456789abcdef-stray")
        with pytest.raises(Refused, match=r"no directory has orders-1 \(replicas on 1\): name"):
            source.list_log_ends()
        fs.rename("/data/orders-1.0123456789abcdef0123456789abcdef-stray", "/data/orders-1")
        assert len(source.list_log_ends().logs) == 2
        log = "/data/__cluster_metadata-0/00000000000000000000.log"
        file = fs.open(log)
        file.pwrite(b"\xff", 40)
        file.close()
        with pytest.raises(Refused, match="__cluster_metadata-0: the checksum of the metadata at offset 0 is wrong"):
            source.list_log_ends()
        fs.rename("/data/__cluster_metadata-0", "/data/elsewhere")
        with pytest.raises(Refused, match="no __cluster_metadata-0 in /data"):
            source.list_log_ends()

    serve_and(story)


def test_a_topic_that_is_made_while_the_ends_are_asked_for_is_asked_for_again() -> None:
    """The metadata have it, and its directory is not there yet at the first listing."""
    found = list[str]()

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("new")
        fs = node.broker.environment.fs
        node.host.kill()
        moves = [("/data/new-0", "/elsewhere"), ("/elsewhere", "/data/new-0")]

        def now_ms() -> int:
            if moves:
                fs.rename(*moves.pop(0))
            return NOW_MS

        found.extend(log.key.topic for log in DirectorySource(fs, ["/data"], now_ms).list_log_ends().logs)

    serve_and(story)
    assert found == ["new"]


def test_directories_that_no_node_has_formatted_are_refused() -> None:
    async def story(node: Node) -> None:
        await node.connect()
        fs = node.broker.environment.fs
        fs.make_directories("/empty")
        for path, said in (("/empty", "no node has formatted /empty"), ("/none", "/none is not a directory")):
            with pytest.raises(Refused, match=said):
                DirectorySource(fs, [path], lambda: NOW_MS)

    serve_and(story)


def test_transactions_are_asked_for_last_and_offsets_first() -> None:
    assert listing_rounds_of(["b", TRANSACTIONS_TOPIC, OFFSETS_TOPIC, "a", SHARE_STATE_TOPIC]) == [
        [OFFSETS_TOPIC, SHARE_STATE_TOPIC],
        ["a", "b"],
        [TRANSACTIONS_TOPIC],
    ]
