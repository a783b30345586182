"""The start offsets of share groups, as rows of the table `offsets`.

A share group commits no offsets. It continues in a partition at the share-partition start offset. This offset is in the
records of `__share_group_state`: a snapshot of the state of a partition, and updates of it. These records name topics
by their ids; the names are in a record of the group in `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.protocol.compiler import decode
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, value_version
from moldau.protocol.records.share_groups import (
    ShareGroupStatePartitionMetadataValue,
)
from moldau.protocol.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.tables.views.rows import Row, time_of

SHARE_STATE: Final = "__share_group_state"
SNAPSHOT_KEY, UPDATE_KEY, TOPICS_KEY = 0, 1, 15
NO_OFFSET: Final = -1
"""The start offset in a snapshot if no consumer has read yet, and in an update if the start offset does not change."""


class InternalRecord(NamedTuple):
    """A record of an internal topic."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


class _Start(NamedTuple):
    offset: int
    leader_epoch: int
    timestamp_ms: int


def share_offset_rows(states: Iterable[InternalRecord], groups: Iterable[InternalRecord]) -> Iterator[Row]:
    """Make the rows of share groups from the records of `__share_group_state` (`states`) and of `__consumer_offsets`
    (`groups`), both in the order of the offsets. A topic whose name is not known any more is named by its id. Raises
    `MalformedMessage`."""
    starts: dict[tuple[str, bytes, int], _Start] = {}
    for record in states:
        _apply(starts, record)
    names = _names(groups)
    for (group, topic_id, partition), start in starts.items():
        if start.offset == NO_OFFSET:
            continue
        topic = names.get(topic_id) or uuid_text(topic_id)
        epoch = None if start.leader_epoch < 0 else start.leader_epoch
        yield (group, topic, partition, start.offset, epoch, "", time_of(start.timestamp_ms), None)


def _apply(starts: dict[tuple[str, bytes, int], _Start], record: InternalRecord) -> None:
    """Apply one record to `starts`, the start offset of each group and partition. A snapshot without a value deletes
    the entry."""
    body, number = memoryview(record.key)[PREFIX_SIZE:], read_prefix(record.key)
    if number == SNAPSHOT_KEY:
        whose = decode(ShareSnapshotKey, body, 0)
        place = (whose.group_id, whose.topic_id, whose.partition)
        if record.value is None:
            starts.pop(place, None)
            return
        version = value_version(record.value, ShareSnapshotValue)
        state = decode(ShareSnapshotValue, memoryview(record.value)[PREFIX_SIZE:], version)
        starts[place] = _Start(state.start_offset, state.leader_epoch, record.timestamp_ms)
    elif number == UPDATE_KEY and record.value is not None:
        of_update = decode(ShareUpdateKey, body, 0)
        place = (of_update.group_id, of_update.topic_id, of_update.partition)
        version = value_version(record.value, ShareUpdateValue)
        update = decode(ShareUpdateValue, memoryview(record.value)[PREFIX_SIZE:], version)
        before = starts.get(place, _Start(NO_OFFSET, NO_OFFSET, record.timestamp_ms))
        starts[place] = _Start(
            before.offset if update.start_offset == NO_OFFSET else update.start_offset,
            before.leader_epoch if update.leader_epoch < 0 else update.leader_epoch,
            record.timestamp_ms,
        )


def _names(groups: Iterable[InternalRecord]) -> dict[bytes, str]:
    """The names of the topics that share groups read, by topic id."""
    names: dict[bytes, str] = {}
    for record in groups:
        if record.value is None or read_prefix(record.key) != TOPICS_KEY:
            continue
        version = value_version(record.value, ShareGroupStatePartitionMetadataValue)
        read = decode(ShareGroupStatePartitionMetadataValue, memoryview(record.value)[PREFIX_SIZE:], version)
        names |= {topic.topic_id: topic.topic_name for topic in read.deleting_topics}
        names |= {topic.topic_id: topic.topic_name for topic in read.initializing_topics}
        names |= {topic.topic_id: topic.topic_name for topic in read.initialized_topics}
    return names
