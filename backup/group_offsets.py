"""Corrects the committed offsets of groups in a restored log: an offset past the end of its partition is moved back to
that end.
"""

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
    """A committed offset that a restore changes or removes."""

    group_id: str
    topic: str
    partition: int
    before: CommittedOffset
    after: int | None
    """The offset after the restore. None if the offset is removed, because its partition is not restored."""

    def offset_change(self) -> OffsetChange:
        """Make the change for a record of `__consumer_offsets`. The record has no leader epoch, because the stored
        epoch belongs to the old offset.
        """
        value = None if self.after is None else self.before._replace(offset=self.after, leader_epoch=-1)
        return OffsetChange(self.group_id, self.topic, self.partition, value)


class RestoredGroupOffsets:
    """Collects the committed offsets from one partition of `__consumer_offsets`. The caller passes the batches of the
    restored log in order.
    """

    def __init__(self) -> None:
        self._reader = LogReader(0, GroupRecordReader())
        self._store = OffsetStore()

    def add_batch(self, batch: BytesLike) -> None:
        """Note the next batch of the restored log. Raises `MalformedMessage`."""
        for change, end_offset in self._reader.read(batch):
            if isinstance(change, OffsetChange | OffsetsLoaded | TransactionEnded):
                self._store.append(change, end_offset)
        self._store.commit(self._reader.next_offset)

    def moved_offsets(self, ends: Mapping[TopicPartition, int]) -> list[MovedOffset]:
        """Return the committed offsets that the restore changes or removes: those past the end of their partition, and
        those of partitions that are not restored.

        `ends`: the end offsets of all restored partitions.
        """
        found = []
        for group_id in self._store.groups():
            for (topic, partition), committed in self._store.committed_offsets(group_id).offsets.items():
                end_offset = ends.get((topic, partition))
                if end_offset is None or committed.offset > end_offset:
                    found.append(MovedOffset(group_id, topic, partition, committed, end_offset))
        return found
