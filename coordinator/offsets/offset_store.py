"""The offsets of all groups of a shard, each as a committed/pending pair.

A change is uncommitted as soon as it is appended and becomes committed with its batch. Decisions see the latest state,
readers the committed one. Both know which offsets are pending in a transaction (`group_offsets.py`).
"""

from __future__ import annotations

from typing import TypeAlias

from moldau.coordinator.group.records import OffsetChange, OffsetsLoaded, TopicPartition, TransactionEnded
from moldau.coordinator.offsets.group_offsets import GroupOffsets
from moldau.coordinator.runtime.pairs import PendingChanges
from moldau.protocol.record_batch import NO_PRODUCER_ID

StoreChange: TypeAlias = OffsetChange | OffsetsLoaded | TransactionEnded


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._uncommitted: PendingChanges[StoreChange] = PendingChanges()
        self._transactions: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        """The groups and partitions with committed records in open transactions, by producer id."""

    def append(self, change: StoreChange, end_offset: int) -> None:
        """Apply an appended change; its batch ends at `end_offset`."""
        self._uncommitted.add(change, end_offset)

    def commit(self, committed_end_offset: int) -> None:
        """Make the changes in all batches up to this offset visible to readers."""
        for change in self._uncommitted.take_committed(committed_end_offset):
            match change:
                case OffsetChange(group_id, topic, partition, value, producer_id):
                    self._group(group_id).apply(change)
                    if value is None:
                        self._forget_empty(group_id)
                    elif producer_id != NO_PRODUCER_ID:
                        self._transactions.setdefault(producer_id, {})[group_id, (topic, partition)] = None
                case OffsetsLoaded():
                    self._commit_loaded(change)
                case TransactionEnded():
                    self._end_transaction(change)

    def _commit_loaded(self, loaded: OffsetsLoaded) -> None:
        producer_id = loaded.producer_id
        for group_id, offsets in loaded.offsets.items():
            self._group(group_id).apply_loaded(offsets, producer_id)
            if producer_id != NO_PRODUCER_ID:
                self._transactions.setdefault(producer_id, {}).update(((group_id, key), None) for key in offsets)

    def _end_transaction(self, ended: TransactionEnded) -> None:
        for group_id, key in self._transactions.pop(ended.producer_id, {}):
            group = self._committed.get(group_id)
            if group is not None:
                group.end(key, ended.producer_id, is_commit=ended.is_commit)
                self._forget_empty(group_id)

    def _group(self, group_id: str) -> GroupOffsets:
        group = self._committed.get(group_id)
        if group is None:
            group = self._committed[group_id] = GroupOffsets()
        return group

    def _forget_empty(self, group_id: str) -> None:
        if self._committed[group_id].is_empty:
            del self._committed[group_id]

    @property
    def count(self) -> int:
        """The number of committed offsets in force, over all groups."""
        return sum(len(group.offsets) for group in self._committed.values())

    def committed(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group. The caller must not change the result."""
        return self._committed.get(group_id) or GroupOffsets()

    def latest(self, group_id: str) -> GroupOffsets:
        """The offsets of a group with every appended change, also uncommitted ones.

        Decisions read these. The caller must not change the result.
        """
        if not self._uncommitted:
            return self.committed(group_id)
        group = self.committed(group_id).copy()
        for change in self._uncommitted:
            match change:
                case OffsetChange():
                    if change.group_id == group_id:
                        group.apply(change)
                case OffsetsLoaded():
                    group.apply_loaded(dict(change.offsets.get(group_id, {})), change.producer_id)
                case TransactionEnded():
                    group.end_all(change.producer_id, is_commit=change.is_commit)
        return group

    def groups(self) -> list[str]:
        """All groups with an offset, committed or not, in force or pending."""
        found = dict.fromkeys(self._committed)
        for change in self._uncommitted:
            match change:
                case OffsetChange():
                    found[change.group_id] = None
                case OffsetsLoaded():
                    found.update(dict.fromkeys(change.offsets))
                case TransactionEnded():
                    pass
        return list(found)
