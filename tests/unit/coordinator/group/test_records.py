"""The records of __consumer_offsets, held against logs that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.membership import group_of_record
from moldau.coordinator.classic.rebalance import generation_change, new_group_change
from moldau.coordinator.group.records import Change, CommittedOffset, OffsetChange, RecordChange
from moldau.coordinator.runtime.log_reading import LogReader, RecordReader
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.offsets import GroupMetadataValue

LOGS = {
    lines[0].removeprefix("partition "): bytes.fromhex(lines[1])
    for part in (Path(__file__).parent / "kafka_4_3_1_groups.txt").read_text().split("# ")[2:]
    for lines in [part.splitlines()]
}


def rewritten(change: Change, wall_ms: int) -> Record:
    """The record that we would write to say the same, a generation from the group as it is restored."""
    match change:
        case RecordChange(group_id, _, GroupMetadataValue() as value):
            assignments = {member.member_id: member.assignment for member in value.members}
            return record_of(generation_change(group_of_record(group_id, value), assignments), wall_ms)
    return record_of(change, wall_ms)


@pytest.mark.parametrize("partition", LOGS)
def test_what_kafka_wrote_is_understood_and_would_be_written_again_byte_for_byte(partition: str) -> None:
    data = LOGS[partition]
    batches = list(iterate_batches(data))
    assert batches
    for position, header in batches:
        records = []
        for record in records_of(data, position, header):
            change = change_of(record)
            assert change is not None
            records.append(rewritten(change, record.timestamp))
        ours = build_batch(records, base_offset=header.base_offset, base_sequence=0, partition_leader_epoch=0)
        assert ours == data[position : position + header.size]


def test_the_story_of_a_group_is_told_by_its_log() -> None:
    found = [replayable.change for replayable in LogReader(0, RecordReader(change_of)).read(LOGS["3"])]
    values = [change.value for change in found if isinstance(change, RecordChange)]
    generations = [
        (value.generation, value.protocol_type, len(value.members))
        for value in values
        if isinstance(value, GroupMetadataValue)
    ]
    assert generations == [(0, "", 0), (1, "consumer", 1), (3, "consumer", 0)]
    assert values[-1] is None
    offsets = [change.value for change in found if isinstance(change, OffsetChange)]
    told = [(value.offset, value.metadata, value.expire_ms is not None) for value in offsets if value is not None]
    assert told == [(5, "m", False), (6, "m", False), (9, "", False), (7, "m", False), (8, "m", True)]
    assert offsets[-2:] == [None, None]


def test_the_first_record_of_a_group_is_what_kafka_writes() -> None:
    (first, *_) = records_of(LOGS["19"])
    group = ClassicGroup("old", 1795279570653)
    assert record_of(new_group_change(group), first.timestamp).value == first.value


def test_an_explicit_expiry_forces_the_version_that_can_say_it() -> None:
    committed = CommittedOffset(5, 7, "m", 1000, 2000, bytes(range(16)))
    record = record_of(OffsetChange("g", "t", 0, committed), 1000)
    assert record.value is not None and record.value[:2] == b"\0\1"
    assert change_of(record) == OffsetChange("g", "t", 0, CommittedOffset(5, -1, "m", 1000, 2000))


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_all_versions_are_read(version: int) -> None:
    body = struct.pack(">q", 42)
    if version >= 3:
        body += struct.pack(">i", 9)
    body += b"\x02m" if version >= 4 else b"\0\1m"
    body += struct.pack(">q", 1000)
    if version == 1:
        body += struct.pack(">q", 2000)
    if version >= 4:
        body += b"\0"
    record = record_of(OffsetChange("g", "t", 3, None), 0)
    change = change_of(Record(record.key, struct.pack(">h", version) + body))
    expected = CommittedOffset(42, 9 if version >= 3 else -1, "m", 1000, 2000 if version == 1 else None)
    assert change == OffsetChange("g", "t", 3, expected)


def test_keys_of_the_oldest_release_are_read() -> None:
    record = record_of(OffsetChange("g", "t", 3, None), 0)
    assert record.key is not None
    assert change_of(Record(b"\0\0" + record.key[2:], None)) == OffsetChange("g", "t", 3, None)


def test_records_of_no_kind_of_group_are_passed_over() -> None:
    assert change_of(Record(b"\x03\xe8\0\1g", b"\0\0")) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(None, b""),
        Record(b"\0", b""),
        Record(b"\0\1\0\5g", None),
        Record(b"\0\2\0\1g", b"\0"),
        Record(b"\0\2\0\1g", b"\0\5"),
        Record(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x63"),
    ],
)
def test_damaged_records_are_refused(record: Record) -> None:
    with pytest.raises(MalformedMessage):
        change_of(record)
