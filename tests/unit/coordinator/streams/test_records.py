"""The records of a streams group, as a coordinator of Apache Kafka 4.3.1 wrote them for a real application."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.streams.records import RECORDS, epoch_change
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.streams_groups import StreamsGroupMetadataValue
from tests.support.recorded_groups import groups_log
from tests.support.streams_stage import GROUP, StreamsStage, group_in

KEYS = tuple(record.key for record in RECORDS)


def recorded() -> Iterator[tuple[Record, RecordChange]]:
    """The records of streams groups in the recorded log."""
    data = groups_log()
    for position, header in iterate_batches(data):
        for record in () if header.is_control else records_of(data, position, header):
            change = change_of(record)
            if isinstance(change, RecordChange) and isinstance(change.key, KEYS):
                yield record, change


def test_each_record_is_written_as_it_was_read() -> None:
    types = set()
    for record, change in recorded():
        again = record_of(change, record.timestamp)
        assert (again.key, again.value) == (record.key, record.value)
        types.add(type(change.key))
    assert types == set(KEYS), "every type of record is there"


def test_the_group_is_as_apache_kafka_left_it() -> None:
    """One process with two threads; a repartitioning, and a count with a changelog."""
    shard = GroupShard(GroupConfig())
    for offset, (_, change) in enumerate(recorded()):
        shard.replay(change, offset + 1)
    shard.committed_end_offset = 1_000
    group = group_in(shard, "streams-group")
    assert group.state_name == "Stable"
    assert len(group.members) == 2 and len({member.process_id for member in group.members.values()}) == 1
    assert group.topology is not None and len(group.topology.subtopologies) == 2
    assert group.validated_topology_epoch == group.topology.epoch
    assert set(group.targets) == set(group.members)
    assert group.assignment_configs == {"num.standby.replicas": "0"}
    assert len(group.owners.active) == sum(
        len(partitions) for tasks in group.targets.values() for partitions in tasks.active.values()
    )


def test_what_a_plugin_of_apache_kafka_4_4_holds_is_kept_in_every_later_epoch() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    group = group_in(stage.shard, GROUP)
    described = epoch_change(
        GROUP, group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs, (3, 2)
    )
    stage.store(record_of(described, stage.wall_ms))
    stage.take_over()
    stage.join("b")
    stage.leave("a")
    changes = [change_of(record) for record in stage.records]
    epochs = [each.value for each in changes if isinstance(each, RecordChange)]
    later = [each for each in epochs if isinstance(each, StreamsGroupMetadataValue)][-2:]
    assert [each.epoch for each in later] == [group.epoch + 1, group.epoch + 2]
    for each in later:
        assert (each.stored_description_topology_epoch, each.failed_description_topology_epoch) == (3, 2)
