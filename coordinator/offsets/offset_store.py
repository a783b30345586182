"""The offsets of all groups of a shard, each group with a committed state and uncommitted changes.

A change is uncommitted from its append until its batch is committed. Decisions use the latest state, readers the
committed state. Both states may have offsets that are pending in a transaction.

An offset that a producer commits in a transaction is pending until the marker of the transaction. If a partition has
several offsets, the one with the latest record takes effect, as in Apache Kafka, even if another one becomes visible
later:

| log | the offset that takes effect |
|---|---|
| 5 in a transaction, its commit | 5 |
| 5 in a transaction, its abort | the offset before |
| 5 in a transaction, 6 outside of it, its commit | 6 |
| 5 in a transaction, 6 in another, the commit of the other, the commit of the first | 6 |
| 5 in a transaction, a removal, its commit | none |

A partition stays pending while one of its transactions is open, even if the offset of that transaction is already
superseded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from moldau.coordinator.group.history import unknown_log_start
from moldau.coordinator.group.records import (
    CommittedOffset,
    OffsetChange,
    Offsets,
    OffsetsLoaded,
    TopicPartition,
    TransactionEnded,
)
from moldau.coordinator.runtime.step import UncommittedChanges
from moldau.protocol.record_batch import NO_PRODUCER_ID

StoreChange: TypeAlias = OffsetChange | OffsetsLoaded | TransactionEnded


@dataclass(slots=True)
class GroupOffsets:
    offsets: Offsets = field(default_factory=dict)
    """The offsets in force by partition: committed outside of transactions, or in committed transactions."""
    pending: dict[TopicPartition, dict[int, CommittedOffset | None]] = field(default_factory=dict)
    """For each partition the offsets of open transactions by producer id, in the order of their records.

    An offset is None if a later record supersedes it.
    """
    changes: int = field(default=0, compare=False)
    """The number of changes of the offsets in force. A reader compares it with an earlier value to find out whether the
    offsets have changed."""
    removals: int = field(default=0, compare=False)
    """The number of partitions that were removed. While neither this number nor the number of partitions changes, the
    partitions and their order are the same."""

    @property
    def is_empty(self) -> bool:
        return not self.offsets and not self.pending

    def has(self, key: TopicPartition) -> bool:
        """Whether the group has an offset for the partition, in force or pending."""
        return key in self.offsets or key in self.pending

    def partitions(self) -> list[TopicPartition]:
        """The partitions with an offset in force or pending."""
        return list({**dict.fromkeys(self.offsets), **dict.fromkeys(self.pending)})

    def copy(self) -> GroupOffsets:
        return GroupOffsets(dict(self.offsets), {key: dict(values) for key, values in self.pending.items()})

    def apply(self, change: OffsetChange) -> None:
        key = (change.topic, change.partition)
        self.changes += 1
        if change.value is None:
            self.removals += 1
            self.offsets.pop(key, None)
            self.pending.pop(key, None)
        elif change.producer_id == NO_PRODUCER_ID:
            self.offsets[key] = change.value
            if self.pending:
                self._overrule(key)
        else:
            self._add_pending(key, change.producer_id, change.value)

    def apply_loaded(self, offsets: Offsets, producer_id: int) -> None:
        """Apply the last offset of each partition from consecutive commits. This object may keep the dictionary that is
        passed."""
        if producer_id != NO_PRODUCER_ID:
            for key, value in offsets.items():
                self._add_pending(key, producer_id, value)
            return
        if self.pending:
            for key in self.pending.keys() & offsets.keys():
                self._overrule(key)
        self.changes += 1
        if self.offsets:
            self.offsets.update(offsets)
        else:
            self.offsets = offsets

    def end_transaction_of(self, key: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """End the transaction of the producer for one partition: its offset takes effect on commit, and is discarded on
        abort."""
        values = self.pending.get(key)
        if values is None or producer_id not in values:
            return
        value = values[producer_id]
        if is_commit and value is not None:
            self.changes += 1
            self.offsets[key] = value
            for earlier in values:
                if earlier == producer_id:
                    break
                values[earlier] = None
        del values[producer_id]
        if not values:
            del self.pending[key]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """End the transaction of the producer for all partitions."""
        for key in list(self.pending):
            self.end_transaction_of(key, producer_id, is_commit=is_commit)

    def _add_pending(self, key: TopicPartition, producer_id: int, value: CommittedOffset) -> None:
        values = self.pending.setdefault(key, {})
        values.pop(producer_id, None)
        values[producer_id] = value

    def _overrule(self, key: TopicPartition) -> None:
        """Mark the pending offsets of the partition as superseded by a later record outside of any transaction."""
        values = self.pending.get(key, {})
        for producer_id in values:
            values[producer_id] = None


class OffsetWentBack(NamedTuple):
    """A committed offset that is lower than the former committed offset of the partition."""

    group_id: str
    topic: str
    partition: int
    by: int
    commit_ms: int


class OffsetSkippedDeletedRecords(NamedTuple):
    """A committed offset that skips records which had been deleted: the former committed offset was below the log
    start."""

    group_id: str
    topic: str
    partition: int
    by: int
    """The number of offsets from the former committed offset to the log start."""
    commit_ms: int


OffsetFinding = OffsetWentBack | OffsetSkippedDeletedRecords


class OffsetStore:
    def __init__(self, log_start_of: Callable[[str, int], int] = unknown_log_start) -> None:
        """`log_start_of` returns the log start offset of a partition, by topic and partition index; -1 if it is not
        known."""
        self._log_start_of = log_start_of
        self._committed: dict[str, GroupOffsets] = {}
        self._uncommitted: UncommittedChanges[StoreChange] = UncommittedChanges()
        self._transactions: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        """The groups and partitions with committed records in open transactions, by producer id."""

    def append(self, change: StoreChange, end_offset: int) -> None:
        """Add a change whose batch was appended. The change becomes committed when the log is committed up to
        `end_offset`, the end of the batch."""
        self._uncommitted.add(change, end_offset)

    def commit(self, committed_end_offset: int) -> list[OffsetFinding]:
        """Make the changes in all batches up to this offset visible to readers. Returns a finding for each offset that
        is lower than its predecessor or skips deleted records. An offset of a transaction is compared when the
        transaction is committed."""
        told: list[OffsetFinding] = []
        for change in self._uncommitted.pop_committed(committed_end_offset):
            match change:
                case OffsetChange():
                    self._commit_change(change, told)
                case OffsetsLoaded():
                    self._commit_loaded(change)
                case TransactionEnded():
                    self._end_transaction(change, told)
        return told

    def _commit_change(self, change: OffsetChange, told: list[OffsetFinding]) -> None:
        """Make a change visible. If its offset is lower than the former one or skips deleted records, that is added to
        `told`."""
        group_id, topic, partition, value, producer_id = change
        key = (topic, partition)
        group = self._group(group_id)
        former = group.offsets.get(key)
        if value is not None and producer_id == NO_PRODUCER_ID and not group.pending:
            # What `apply` does for the most frequent change.
            group.changes += 1
            group.offsets[key] = value
        else:
            group.apply(change)
        if value is None:
            self._forget_empty(group_id)
        elif producer_id != NO_PRODUCER_ID:
            self._transactions.setdefault(producer_id, {})[group_id, key] = None
        elif former is not None and former.offset != value.offset:
            self._compare(group_id, key, former, value, told)

    def _compare(
        self,
        group_id: str,
        key: TopicPartition,
        former: CommittedOffset,
        value: CommittedOffset,
        told: list[OffsetFinding],
    ) -> None:
        """Append to `told` what is remarkable about an offset that took the place of another one."""
        by = former.offset - value.offset
        if by > 0:
            told.append(OffsetWentBack(group_id, *key, by, value.commit_ms))
        elif by and former.offset < (start := self._log_start_of(*key)) <= value.offset:
            told.append(OffsetSkippedDeletedRecords(group_id, *key, start - former.offset, value.commit_ms))

    def _commit_loaded(self, loaded: OffsetsLoaded) -> None:
        producer_id = loaded.producer_id
        for group_id, offsets in loaded.offsets.items():
            self._group(group_id).apply_loaded(offsets, producer_id)
            if producer_id != NO_PRODUCER_ID:
                self._transactions.setdefault(producer_id, {}).update(((group_id, key), None) for key in offsets)

    def _end_transaction(self, ended: TransactionEnded, told: list[OffsetFinding]) -> None:
        for group_id, key in self._transactions.pop(ended.producer_id, {}):
            group = self._committed.get(group_id)
            if group is not None:
                former = group.offsets.get(key)
                group.end_transaction_of(key, ended.producer_id, is_commit=ended.is_commit)
                value = group.offsets.get(key)
                if former is not None and value is not None and value is not former:
                    self._compare(group_id, key, former, value, told)
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

    def committed_offsets(self, group_id: str) -> GroupOffsets:
        """The committed offsets of a group, with those pending in transactions. The caller must not change the
        result."""
        return self._committed.get(group_id) or GroupOffsets()

    def latest_offsets(self, group_id: str) -> GroupOffsets:
        """The offsets of a group after every appended change, including uncommitted changes.

        Decisions are made on these offsets. The caller must not change the result.
        """
        if not self._uncommitted:
            return self.committed_offsets(group_id)
        group = self.committed_offsets(group_id).copy()
        for change in self._uncommitted:
            match change:
                case OffsetChange():
                    if change.group_id == group_id:
                        group.apply(change)
                case OffsetsLoaded():
                    group.apply_loaded(dict(change.offsets.get(group_id, {})), change.producer_id)
                case TransactionEnded():
                    group.end_transaction(change.producer_id, is_commit=change.is_commit)
        return group

    def groups(self) -> list[str]:
        """The ids of all groups with an offset in force or pending, whether its record is committed or not."""
        return list({**dict.fromkeys(self._committed), **self.changing_groups()})

    def changing_groups(self) -> dict[str, None]:
        """The ids of the groups whose latest offsets may differ from the committed ones."""
        found: dict[str, None] = {}
        for change in self._uncommitted:
            match change:
                case OffsetChange():
                    found[change.group_id] = None
                case OffsetsLoaded():
                    found.update(dict.fromkeys(change.offsets))
                case TransactionEnded():
                    found.update((group_id, None) for group_id, _ in self._transactions.get(change.producer_id, {}))
        return found
