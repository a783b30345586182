"""The records of `__share_group_state`, in the version that Apache Kafka 4.3.1 reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch, StateUpdate
from moldau.protocol.compiler import decode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, type_prefix, value_version
from moldau.protocol.records.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from moldau.protocol.records.share_state import StateBatch as RecordedBatch
from moldau.protocol.records.stored_structs import encode_stored

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1
VERSION: Final = 0
NEXT: Final = -1


class ShareStateChange(NamedTuple):
    """The change that one record makes. A change without a value deletes the state of the share partition `key`."""

    key: ShareKey
    value: ShareState | StateUpdate | None
    offset: int = NEXT
    """The offset of a loaded record; -1 if the record is not written yet."""


def record_of(change: ShareStateChange, wall_ms: int) -> Record:
    """The record that stores a change: an update, a snapshot, or for a deletion a snapshot without a value."""
    (group_id, topic_id, partition), value, _ = change
    if isinstance(value, StateUpdate):
        update_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
        return Record(encode_with_type(UPDATE_KEY, update_key), encode_with_type(VERSION, update_value(value)), wall_ms)
    key = encode_with_type(SNAPSHOT_KEY, ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition))
    return Record(key, None if value is None else encode_with_type(VERSION, snapshot_value(value)), wall_ms)


def encode_with_type(prefix: int, struct: object) -> bytes:
    return type_prefix(prefix) + encode_stored(struct, VERSION)


def snapshot_value(state: ShareState) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=batches_to_record(state.batches),
    )


def update_value(update: StateUpdate) -> ShareUpdateValue:
    return ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=batches_to_record(update.batches),
    )


def batches_to_record(batches: Iterable[StateBatch]) -> list[RecordedBatch]:
    return [
        RecordedBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def change_of(record: Record) -> ShareStateChange | None:
    """Decode the change that a record makes; None if the type of its key is unknown.

    Raises `MalformedMessage` for a value of a version that Apache Kafka 4.3.1 does not write.
    """
    if record.key is None:
        raise MalformedMessage("a record without a key")
    body = memoryview(record.key)[PREFIX_SIZE:]
    match read_prefix(record.key):
        case 0:
            key = decode(ShareSnapshotKey, body, VERSION)
            state = None if record.value is None else read_snapshot(record.value)
            return ShareStateChange(ShareKey(key.group_id, key.topic_id, key.partition), state, record.offset)
        case 1:
            if record.value is None:
                raise MalformedMessage("an update without a value")
            update_key = decode(ShareUpdateKey, body, VERSION)
            share_key = ShareKey(update_key.group_id, update_key.topic_id, update_key.partition)
            return ShareStateChange(share_key, read_update(record.value), record.offset)
        case _:
            return None


def read_snapshot(value: bytes) -> ShareState:
    read = decode(ShareSnapshotValue, memoryview(value)[PREFIX_SIZE:], value_version(value, ShareSnapshotValue))
    return ShareState(
        read.snapshot_epoch,
        read.state_epoch,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        batches_of(read.state_batches),
        read.create_timestamp,
        read.write_timestamp,
    )


def read_update(value: bytes) -> StateUpdate:
    read = decode(ShareUpdateValue, memoryview(value)[PREFIX_SIZE:], value_version(value, ShareUpdateValue))
    return StateUpdate(
        read.snapshot_epoch,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        batches_of(read.state_batches),
    )


def batches_of(recorded_batches: Iterable[RecordedBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in recorded_batches
    )


class ShareStateRecordReader(RecordReader[ShareStateChange]):
    """Decodes the records of one partition of `__share_group_state` when its coordinator starts."""

    def __init__(self) -> None:
        super().__init__(change_of)
