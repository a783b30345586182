"""Corrects the committed offsets of groups in a restored log: an offset past the end of its partition is moved back to
that end, and an offset in a renamed topic is moved to the new name.
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
    """A committed offset that a restore changes, removes, or moves to the new name of its topic."""

    group_id: str
    topic: str
    partition: int
    before: CommittedOffset
    after: int | None
    """The offset after the restore. None if the offset is removed, because its partition is not restored."""
    renamed: str | None = None
    """The new name of the topic; None if the topic keeps its name or is not restored."""

    def removal(self) -> OffsetChange | None:
        """The change that removes the offset under the topic's name in the backup; None if the offset keeps this
        name."""
        is_removed = self.after is None or self.renamed is not None
        return OffsetChange(self.group_id, self.topic, self.partition, None) if is_removed else None

    def correction(self) -> OffsetChange | None:
        """The change that commits the offset after the restore; None if the offset is only removed. An offset that was
        moved back has no leader epoch, because the stored epoch belongs to the old offset."""
        if self.after is None:
            return None
        before = self.before
        epoch = before.leader_epoch if self.after == before.offset else -1
        value = before._replace(offset=self.after, leader_epoch=epoch)
        return OffsetChange(self.group_id, self.renamed or self.topic, self.partition, value)


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

    def moved_offsets(self, ends: Mapping[TopicPartition, int], renames: Mapping[str, str]) -> list[MovedOffset]:
        """Return the committed offsets that the restore changes, removes or moves: offsets past the end of their
        partition, offsets of partitions that are not restored, and offsets of renamed topics.

        `ends`: the end offsets of all restored partitions. `renames`: the new names of topics. Both are by the name in
        the backup.
        """
        found = []
        for group_id in self._store.groups():
            for (topic, partition), committed in self._store.committed_offsets(group_id).offsets.items():
                end_offset = ends.get((topic, partition))
                after = end_offset if end_offset is None or committed.offset > end_offset else committed.offset
                renamed = None if end_offset is None else renames.get(topic)
                if after != committed.offset or renamed is not None:
                    found.append(MovedOffset(group_id, topic, partition, committed, after, renamed))
        return found
