"""A log that Apache Kafka 4.3.1 wrote with groups of every kind is taken over without loss."""

from __future__ import annotations

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.records import TransactionEnded
from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Loaded
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_reader import records_of
from tests.support.recorded_groups import groups_log


def loaded() -> GroupShard:
    reader = LogReader(0, GroupRecordReader())
    changes = reader.read(groups_log())
    assert reader.ignored == 0, "every type of record belongs to a kind"
    shard = GroupShard(GroupConfig(), reader.next_offset)
    for change, end_offset in changes:
        shard.replay(change, end_offset)
    shard.step(Loaded(), 0, 0)
    return shard


def test_every_record_is_written_as_it_was_read() -> None:
    data = groups_log()
    count = 0
    for position, header in iterate_batches(data):
        for record in records_of(data, position, header):
            change = change_of(record)
            assert change is not None and not isinstance(change, TransactionEnded)
            written = record_of(change, record.timestamp)
            assert (written.key, written.value) == (record.key, record.value), f"offset {record.offset}"
            count += 1
    assert count == 762


def test_the_groups_are_those_that_the_tools_of_apache_kafka_listed() -> None:
    found = [entry for entry in loaded().list_groups([], []) if entry is not None]
    listed = {entry.group_id: (entry.group_type, entry.protocol_type, entry.group_state) for entry in found}
    assert listed == {
        "classic-group": ("classic", "consumer", "Stable"),
        "consumer-group": ("consumer", "consumer", "Stable"),
        "left-group": ("consumer", "consumer", "Empty"),
        "share-group": ("share", "share", "Stable"),
        "streams-group": ("streams", "streams", "Stable"),
    }


def test_their_offsets_are_there() -> None:
    assert loaded().group_counts().offsets == 20
