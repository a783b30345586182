"""The committed offsets of groups in a restored log. A restore moves an offset past the end of its partition back to
that end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.records import (
    CommittedOffset,
    OffsetChange,
    OffsetsLoaded,
    TopicPartition,
    TransactionEnded,
)
from moldau.coordinator.offsets.offset_store import OffsetStore
from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.protocol.primitives import BytesLike


class MovedOffset(NamedTuple):
    """A committed offset of a group that a restore moves or removes."""

    group_id: str
    topic: str
    partition: int
    before: CommittedOffset
    after: int | None
    """The offset after the restore. None if the offset is removed, because its partition is not restored."""

    def change(self) -> OffsetChange:
        """The change of the committed offset, for a record in `__consumer_offsets`. It has no leader epoch, because the
        leader epoch of the former offset says nothing about the new one."""
        value = None if self.after is None else self.before._replace(offset=self.after, leader_epoch=-1)
        return OffsetChange(self.group_id, self.topic, self.partition, value)


class SettledOffsets:
    """Collects the committed offsets in one partition of `__consumer_offsets`. Its caller passes the batches of the
    restored log, one after another."""

    def __init__(self, start_offset: int) -> None:
        self._reader = LogReader(start_offset, GroupRecordReader())
        self._store = OffsetStore()

    def observe(self, batch: BytesLike) -> None:
        """Note the next batch of the restored log. Raises `MalformedMessage`."""
        for change, end_offset in self._reader.read(batch):
            if isinstance(change, OffsetChange | OffsetsLoaded | TransactionEnded):
                self._store.append(change, end_offset)
        self._store.commit(self._reader.next_offset)

    def moved(self, ends: Mapping[TopicPartition, int]) -> list[MovedOffset]:
        """Return the committed offsets that a restore moves or removes: the offsets past the end of their partition,
        and the offsets of partitions that are not restored. `ends`: the end offsets of all restored partitions."""
        found = []
        for group_id in self._store.groups():
            for (topic, partition), committed in self._store.committed_offsets(group_id).offsets.items():
                end_offset = ends.get((topic, partition))
                if end_offset is None or committed.offset > end_offset:
                    found.append(MovedOffset(group_id, topic, partition, committed, end_offset))
        return found
