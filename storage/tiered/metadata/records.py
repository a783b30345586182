"""The records of `__remote_log_metadata`, byte for byte as Apache Kafka 4.3.1 reads and writes them.

A record has no key. Its value is framed as the value of a metadata record is (`protocol/framed_records.py`).
`metadata_partition` chooses, exactly as Apache Kafka does, the partition of the topic for the records of a user
partition.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from moldau.protocol.framed_records import FramedRecords
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.records import remote_log
from moldau.protocol.records.remote_log import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.remote_segment import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

VERSION: Final = 0
RECORDS: Final = FramedRecords("remote log metadata", vars(remote_log))

RemoteChange: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDelete
S = TypeVar("S", SegmentState, PartitionDeleteState)


def encode_change(partition: RemotePartition, change: RemoteChange) -> bytes:
    """Encode a change of a partition's remote log as the value of a record."""
    entry = TopicIdPartitionEntry(name=partition.topic, id=partition.topic_id, partition=partition.partition)
    match change:
        case RemoteSegment():
            return RECORDS.encode(_segment_record(entry, change), VERSION)
        case SegmentUpdate():
            update = RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=entry, id=change.segment_id),
                broker_id=change.broker_id,
                event_timestamp_ms=change.event_timestamp_ms,
                custom_metadata=change.custom_metadata,
                remote_log_segment_state=change.state,
            )
            return RECORDS.encode(update, VERSION)
        case PartitionDelete():
            deletion = RemotePartitionDeleteMetadataRecord(
                topic_id_partition=entry,
                broker_id=change.broker_id,
                event_timestamp_ms=change.event_timestamp_ms,
                remote_partition_delete_state=change.state,
            )
            return RECORDS.encode(deletion, VERSION)


def _segment_record(entry: TopicIdPartitionEntry, segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(topic_id_partition=entry, id=segment.segment_id),
        start_offset=segment.start_offset,
        end_offset=segment.last_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in segment.epochs
        ],
        segment_size_in_bytes=segment.size,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=not segment.has_transaction_index,
    )


def decode_change(value: BytesLike) -> tuple[RemotePartition | None, RemoteChange]:
    """Decode the value of a record into the partition and the change. The partition is None for a snapshot record,
    which does not name it. Raises `MalformedMessage` for a value that Apache Kafka 4.3.1 refuses: an unknown type,
    version or state, a segment without leader epochs, offsets or epochs out of order."""
    match RECORDS.decode(value):
        case RemoteLogSegmentMetadataRecord() as record:
            segment_id = record.remote_log_segment_id
            return _partition(segment_id.topic_id_partition), _segment(segment_id.id, record)
        case RemoteLogSegmentMetadataSnapshotRecord() as record:
            return None, _segment(record.segment_id, record)
        case RemoteLogSegmentMetadataUpdateRecord() as record:
            return _partition(record.remote_log_segment_id.topic_id_partition), SegmentUpdate(
                record.remote_log_segment_id.id,
                record.broker_id,
                record.event_timestamp_ms,
                _state(SegmentState, record.remote_log_segment_state),
                _copied(record.custom_metadata),
            )
        case RemotePartitionDeleteMetadataRecord() as record:
            return _partition(record.topic_id_partition), PartitionDelete(
                record.broker_id,
                record.event_timestamp_ms,
                _state(PartitionDeleteState, record.remote_partition_delete_state),
            )
        case other:
            raise AssertionError(f"{type(other).__name__} is declared and not read")


def _partition(entry: TopicIdPartitionEntry) -> RemotePartition:
    return RemotePartition(entry.name, entry.id, entry.partition)


def _segment(
    segment_id: bytes, record: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataSnapshotRecord
) -> RemoteSegment:
    epochs = tuple(EpochStart(entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs)
    if not epochs:
        raise MalformedMessage("a remote segment without leader epochs")
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in pairwise(epochs)):
        raise MalformedMessage(f"the leader epochs of a remote segment are out of order: {epochs}")
    if not 0 <= record.start_offset <= record.end_offset or epochs[-1].start_offset > record.end_offset:
        raise MalformedMessage(
            f"a remote segment of the offsets {record.start_offset} to {record.end_offset}, with epochs {epochs}"
        )
    if record.segment_size_in_bytes < 0:
        raise MalformedMessage(f"a remote segment of {record.segment_size_in_bytes} bytes")
    return RemoteSegment(
        segment_id=segment_id,
        start_offset=record.start_offset,
        last_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        epochs=epochs,
        size=record.segment_size_in_bytes,
        state=_state(SegmentState, record.remote_log_segment_state),
        custom_metadata=_copied(record.custom_metadata),
        has_transaction_index=not record.txn_index_empty,
    )


def _state(kind: type[S], number: int) -> S:
    try:
        return kind(number)
    except ValueError:
        raise MalformedMessage(f"{kind.__name__} {number}") from None


def _copied(data: BytesLike | None) -> bytes | None:
    return None if data is None else bytes(data)


_LONGS: Final = Struct(">QQ")
_MASK: Final = 0xFFFFFFFF
MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_FACTOR: Final = 0x5BD1E995


def metadata_partition(partition: RemotePartition, partition_count: int) -> int:
    """The partition of the metadata topic with the records of a user partition. `partition_count`: the number of
    partitions of the metadata topic."""
    most, least = _LONGS.unpack(partition.topic_id)
    topic_hash = 31 * (31 + _long_hash(least)) + _long_hash(most)
    number = (31 * topic_hash + partition.partition) & _MASK
    return (_murmur2_of_int(number) & 0x7FFFFFFF) % partition_count


def _long_hash(value: int) -> int:
    """Java's hash of a long, as an unsigned int."""
    return (value ^ (value >> 32)) & _MASK


def _murmur2_of_int(number: int) -> int:
    """Kafka's murmur2 of the four big-endian bytes of a number."""
    mixed = int.from_bytes(number.to_bytes(4, "big"), "little") * MURMUR2_FACTOR & _MASK
    mixed = (mixed ^ (mixed >> 24)) * MURMUR2_FACTOR & _MASK
    hashed = ((MURMUR2_SEED ^ 4) * MURMUR2_FACTOR & _MASK) ^ mixed
    hashed = (hashed ^ (hashed >> 13)) * MURMUR2_FACTOR & _MASK
    return hashed ^ (hashed >> 15)
