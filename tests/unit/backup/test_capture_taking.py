"""A capture is a backup of a window, changed on its way: topics, schemas, positions of groups, and nothing else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.backup.capture.changes import MaskFunctions
from moldau.backup.capture.metadata import captured_metadata
from moldau.backup.capture.packed import CaptureTooLarge, ZipStore
from moldau.backup.capture.taking import (
    CAPTURE_KEY,
    CaptureResult,
    CaptureRules,
    CaptureShell,
    NothingToCapture,
    take_capture,
)
from moldau.backup.reading import read_batches, read_metadata
from moldau.backup.sources.port import LogEnds, MetadataSnapshot
from moldau.backup.store import BackupStore
from moldau.backup.taking import DamagedLog
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage, Provenance
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import read_snapshot, snapshot_batches
from moldau.protocol.control_records import ControlRecordType, encode_control_key
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.storage.tiered.port import get_all
from tests.unit.backup.logs import MemoryLog, MemorySource, offloaded
from tests.unit.backup.test_capture_commits import committed

SECRET = json.dumps({"card": "4111", "n": 1}).encode()
SETTINGS = {
    "retention.ms": "1",
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "remote.storage.enable": "true",
}
NOW_MS = 1_796_000_000_000


def image_of(*topics: str) -> MetadataImage:
    """A cluster with topics of two partitions, settings and a user."""
    records: list[object] = [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
    ]
    for topic in topics:
        topic_id = topic.encode().ljust(16, b"\0")
        records.append(TopicRecord(name=topic, topic_id=topic_id))
        records += [
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=4,
                partition_epoch=4,
            )
            for number in range(2)
        ]
        records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)
            for name, value in SETTINGS.items()
        ]
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(Provenance(7, 1, 5))


IMAGE = image_of("orders", "payments", "_schemas", "__consumer_offsets", "__transaction_state")


class ClusterSource(MemorySource):
    """A source whose metadata can be read."""

    def list_log_ends(self) -> LogEnds:
        batches = snapshot_batches(
            IMAGE.snapshot_records(),
            QuorumDescription(),
            metadata_version=IMAGE.features.metadata_version,
            epoch=1,
            last_contained_ms=5,
            now_ms=NOW_MS,
        )
        return super().list_log_ends()._replace(metadata=MetadataSnapshot(7, 1, b"".join(batches)))


def taken(path: Path, logs: Sequence[MemoryLog], rules: CaptureRules, *, size_max: int = 1 << 20) -> CaptureResult:
    shell = CaptureShell(lambda: NOW_MS, offloaded, lambda read, written: None)
    with ZipStore.create_new(path, size_max) as store:
        captured = asyncio.run(take_capture(BackupStore(store), ClusterSource(logs), rules, shell))
        store.finish()
    return captured


def read(path: Path, captured: CaptureResult) -> tuple[dict[str, list[Record]], bytes, bytes]:
    """The records of each partition, the metadata, and capture.json."""

    async def story(store: ZipStore) -> tuple[dict[str, list[Record]], bytes, bytes]:
        logs = {
            str(key): [record async for _, batch in read_batches(store, key, part) for record in records_of(batch)]
            for key, part in captured.manifest.partitions()
        }
        return logs, await read_metadata(store, captured.manifest), await get_all(store, CAPTURE_KEY, 1 << 20)

    with ZipStore.open_existing(path) as store:
        return asyncio.run(story(store))


def stored(offset: int, *times: int) -> bytes:
    return build_batch([Record(b"key", SECRET, time) for time in times], base_offset=offset, partition_leader_epoch=4)


def test_a_capture_has_its_topics_schemas_and_positions(tmp_path: Path) -> None:
    logs = [
        MemoryLog("orders", [stored(0, 10, 20), stored(2, 30, 40)]),
        MemoryLog("orders", [stored(5, 1)], partition=1, start_offset=5),
        MemoryLog("payments", [stored(0, 25)]),
        MemoryLog("_schemas", [stored(0, 1)]),
        MemoryLog("__consumer_offsets", [build_batch([committed(19, 1), committed(25, 3)])], partition=1),
        MemoryLog("__transaction_state", [stored(0, 25)]),
    ]
    rules = CaptureRules(topics=["ord*", "__*"], from_ms=20, to_ms=40)
    captured = taken(tmp_path / "a", logs, rules)
    assert (captured.record_count, captured.position_count, captured.commit_count) == (2, 1, 1)
    found, metadata, description = read(tmp_path / "a", captured)
    assert {name: [record.offset for record in log] for name, log in found.items()} == {
        "__consumer_offsets-0": [0],
        "_schemas-0": [0],
        "orders-0": [1, 2],
        "orders-1": [],
    }
    assert json.loads(description)["commits"] == [[25, "g", "orders", 0, 3]]
    ends = {str(key): (part.start_offset, part.end_offset) for key, part in captured.manifest.partitions()}
    assert (ends["orders-0"], ends["orders-1"]) == ((0, 4), (6, 6))
    content = read_snapshot(metadata)
    names = {each.name for each in content.records if isinstance(each, TopicRecord)}
    assert names == {"__consumer_offsets", "_schemas", "orders"}
    assert not any(isinstance(each, UserScramCredentialRecord) for each in content.records)
    assert sum(isinstance(each, PartitionRecord) for each in content.records) == 5


def test_settings_of_captured_topics_let_old_records_be() -> None:
    content = read_snapshot(captured_metadata(IMAGE, ["orders", "other"], NOW_MS).data)
    settings = {each.name: each.value for each in content.records if isinstance(each, ConfigRecord)}
    assert settings == {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "min.compaction.lag.ms": str((1 << 63) - 1),
    }


def test_a_transaction_that_never_ended_is_aborted_behind_its_log(tmp_path: Path) -> None:
    written = build_batch(
        [Record(b"k", b"v", 10)], producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log = MemoryLog("orders", [written, stored(1, 20)])
    captured = taken(tmp_path / "a", [log], CaptureRules(topics=["orders"], to_ms=20))
    records = read(tmp_path / "a", captured)[0]["orders-0"]
    assert [(each.offset, each.key) for each in records] == [
        (0, b"k"),
        (2, encode_control_key(ControlRecordType.ABORT)),
    ]


def test_no_masked_secret_is_in_the_file(tmp_path: Path) -> None:
    changes = MaskFunctions(bytes(32))
    texts = ["orders:value.card=hash", "orders:key=shape"]
    rules = CaptureRules(topics=["*"], masks=[changes.parse_rule(text) for text in texts], mask_texts=texts)
    captured = taken(tmp_path / "a", [MemoryLog("orders", [stored(0, 10, 20)])], rules)
    found, metadata, description = read(tmp_path / "a", captured)
    values = {record.value for record in found["orders-0"]}
    assert len(values) == 1
    assert b"4111" not in b"".join(value or b"" for value in values) + metadata + description
    assert {record.key for record in found["orders-0"]} == {changes.same_shape_value(b"key")}


def test_what_cannot_be_captured_is_said_and_leaves_no_file(tmp_path: Path) -> None:
    orders = MemoryLog("orders", [stored(0, 10, 20)])
    with pytest.raises(NothingToCapture, match="no topic of the cluster is named pay or __x"):
        taken(tmp_path / "a", [orders], CaptureRules(topics=["pay", "__x"]))
    with pytest.raises(NothingToCapture, match="no record is in the window"):
        taken(tmp_path / "a", [orders], CaptureRules(topics=["orders"], from_ms=30))
    with pytest.raises(CaptureTooLarge, match="more than 10 bytes"):
        taken(tmp_path / "a", [orders], CaptureRules(topics=["orders"]), size_max=10)
    damaged = bytearray(stored(0, 10))
    damaged[-1] ^= 1
    with pytest.raises(DamagedLog, match=r"orders-0 in memory/orders: .*checksum"):
        taken(tmp_path / "a", [MemoryLog("orders", [bytes(damaged)])], CaptureRules(topics=["orders"]))
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_is_cancelled_closes_the_log_that_a_thread_reads(tmp_path: Path) -> None:
    is_reading, may_go_on = threading.Event(), threading.Event()
    closed: list[MemoryLog] = []

    class SlowLog(MemoryLog):
        def close(self) -> None:
            closed.append(self)

    def wait(offset: int) -> None:
        is_reading.set()
        assert may_go_on.wait(30)

    log = SlowLog("orders", [stored(0, 10)], before_read=wait)

    async def story(store: ZipStore) -> None:
        shell = CaptureShell(lambda: NOW_MS, asyncio.to_thread, lambda read, written: None)
        rules = CaptureRules(topics=["orders"])
        capturing = asyncio.ensure_future(take_capture(BackupStore(store), ClusterSource([log]), rules, shell))
        await asyncio.to_thread(is_reading.wait)
        capturing.cancel()
        await asyncio.sleep(0)
        assert not closed and not capturing.done(), "the thread still reads it"
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await capturing

    with ZipStore.create_new(tmp_path / "a", 1 << 20) as store:
        asyncio.run(story(store))
    assert closed == [log]
