"""Bytes that Apache Kafka 4.3.1 wrote: a formatted directory, its metadata log and a snapshot of it.

The node was formatted with --standalone, all optional features at 0 and a SCRAM user; topics were made, one deleted; a
client quota, a default setting of brokers and an access control entry were set, and it was shut down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.kraft.features import record_version
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after, quorum_records
from moldau.kraft.record_frame import decode_record, encode_record
from moldau.kraft.snapshot.batches import read_snapshot, snapshot_batches
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.metadata import RegisterBrokerRecord, RegisterControllerRecord

FILES = Path(__file__).parent / "kafka_4_3_1"
SNAPSHOT_END_OFFSET = 130
SNAPSHOTS = ["snapshot_130.bin", "first_snapshot.bin", "bootstrap.bin"]


def batches(name: str) -> Iterator[tuple[BatchHeader, list[Record]]]:
    data = (FILES / name).read_bytes()
    for position, header in iterate_batches(data):
        assert crc_is_valid(data, position, header)
        yield header, list(records_of(data, position, header))


def values(name: str) -> Iterator[tuple[int, bytes]]:
    """Offset and value of every data record."""
    for header, records in batches(name):
        for index, record in enumerate(records):
            if not header.is_control:
                assert record.value is not None
                yield header.base_offset + index, record.value


def image_at(end_offset: int) -> MetadataImage:
    replay = Replay()
    before = [decode_record(value) for offset, value in values("metadata_log.bin") if offset < end_offset]
    replay.replay(before, Provenance())
    return replay.image


@pytest.mark.parametrize("name", ["metadata_log.bin", *SNAPSHOTS])
def test_every_record_is_written_as_kafka_writes_it(name: str) -> None:
    for offset, value in values(name):
        record = decode_record(value)
        assert encode_record(record, record_version(record, 30)) == value, f"at offset {offset}: {record}"


def test_the_log_holds_what_was_done() -> None:
    image = image_at(1 << 40)
    assert image.features.levels == {"metadata.version": 30}
    assert sorted(image.topics.ids) == ["orders", "other"]
    orders = image.topics.by_name("orders")
    assert orders is not None and sorted(orders.partitions) == [0, 1, 2]
    assert image.configs.settings_of(ResourceType.TOPIC, "orders") == {
        "cleanup.policy": "compact",
        "retention.ms": "1000000",
    }
    assert image.configs.settings_of(ResourceType.BROKER, "") == {"log.cleaner.threads": "1"}
    assert image.next_producer_id == 1000
    assert [len(image.scram.credentials), len(image.quotas.by_entity), len(image.acls.by_id)] == [1, 1, 1]
    assert image.cluster.brokers[1].fenced and image.cluster.controllers[1].endpoints["CONTROLLER"].port == 23071


def test_a_snapshot_of_kafkas_is_the_image_of_the_log_before_it() -> None:
    content = read_snapshot((FILES / "snapshot_130.bin").read_bytes())
    replay = Replay()
    replay.replay(content.records, Provenance())
    assert replay.image == image_at(SNAPSHOT_END_OFFSET)
    assert content.quorum.kraft_version == 1 and content.quorum.voters is not None
    assert content.quorum.voters.ids == (1,)


def test_our_snapshot_of_that_image_holds_the_same_records() -> None:
    kafkas = Counter(comparable(decode_record(value)) for _, value in values("snapshot_130.bin"))
    ours = Counter(comparable(record) for record in image_at(SNAPSHOT_END_OFFSET).snapshot_records())
    assert ours == kafkas


def comparable(record: object) -> bytes:
    """Kafka's image forgets in which order a node named its features."""
    if isinstance(record, (RegisterBrokerRecord, RegisterControllerRecord)):
        record.features.sort(key=lambda feature: feature.name)
    return encode_record(record, record_version(record, 30))


def test_the_first_files_are_kafkas_byte_for_byte() -> None:
    """But for the timestamps, and with them the checksums."""
    for name, last_contained_ms in (("first_snapshot.bin", None), ("bootstrap.bin", 0)):
        content = read_snapshot((FILES / name).read_bytes())
        headers = [header for header, _ in batches(name)]
        ours = snapshot_batches(
            content.records,
            content.quorum,
            metadata_version=30,
            epoch=0,
            last_contained_ms=headers[0].base_timestamp if last_contained_ms is None else last_contained_ms,
            now_ms=headers[0].base_timestamp,
        )
        for mine, header in zip(ours, headers, strict=True):
            (_, my_header), *rest = iterate_batches(mine)
            assert not rest
            for field in ("base_offset", "batch_length", "partition_leader_epoch", "attributes", "records_count"):
                assert getattr(my_header, field) == getattr(header, field), f"{field} in {name}"


def test_the_voters_are_repeated_by_the_first_leader_as_kafka_does() -> None:
    header, records = next(batches("metadata_log.bin"))
    described = QuorumDescription()
    for record in records:
        described = quorum_after(record, described)
    assert header.is_control and described.voters is not None
    ours = quorum_records(1, described.voters, 0)
    assert [(record.key, record.value) for record in ours] == [(record.key, record.value) for record in records[1:]]
