"""The offsets of one group: those in force, and those of open transactions.

An offset that a producer commits in a transaction is pending until the marker of the transaction. Of two offsets of a
partition the one with the later record counts, as in Apache Kafka, whichever becomes visible first:

| log | the offset that counts |
|---|---|
| 5 in a transaction, its commit | 5 |
| 5 in a transaction, its abort | the one before |
| 5 in a transaction, 6 outside of it, its commit | 6 |
| 5 in a transaction, 6 in another, the commit of the other, the commit of the first | 6 |
| 5 in a transaction, a removal, its commit | none |

A partition stays pending while one of its transactions is open, even if the offset of that transaction is already
superseded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.coordinator.group.records import CommittedOffset, OffsetChange, Offsets, TopicPartition
from moldau.protocol.record_batch import NO_PRODUCER_ID


@dataclass(slots=True)
class GroupOffsets:
    offsets: Offsets = field(default_factory=dict)
    """The offsets in force, by partition."""
    pending: dict[TopicPartition, dict[int, CommittedOffset | None]] = field(default_factory=dict)
    """The offsets of open transactions by producer id, in the order of their records.

    None: a later record supersedes the offset.
    """

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
        if change.value is None:
            self.offsets.pop(key, None)
            self.pending.pop(key, None)
        elif change.producer_id == NO_PRODUCER_ID:
            self.offsets[key] = change.value
            if self.pending:
                self._overrule(key)
        else:
            self._add_pending(key, change.producer_id, change.value)

    def apply_loaded(self, offsets: Offsets, producer_id: int) -> None:
        """Apply consecutive commits. This object may keep the dictionary."""
        if producer_id != NO_PRODUCER_ID:
            for key, value in offsets.items():
                self._add_pending(key, producer_id, value)
            return
        if self.pending:
            for key in self.pending.keys() & offsets.keys():
                self._overrule(key)
        if self.offsets:
            self.offsets.update(offsets)
        else:
            self.offsets = offsets

    def end(self, key: TopicPartition, producer_id: int, *, is_commit: bool) -> None:
        """End the transaction of the producer for this partition."""
        values = self.pending.get(key)
        if values is None or producer_id not in values:
            return
        value = values[producer_id]
        if is_commit and value is not None:
            self.offsets[key] = value
            for earlier in values:
                if earlier == producer_id:
                    break
                values[earlier] = None
        del values[producer_id]
        if not values:
            del self.pending[key]

    def end_all(self, producer_id: int, *, is_commit: bool) -> None:
        """End the transaction of the producer for all partitions."""
        for key in list(self.pending):
            self.end(key, producer_id, is_commit=is_commit)

    def _add_pending(self, key: TopicPartition, producer_id: int, value: CommittedOffset) -> None:
        values = self.pending.setdefault(key, {})
        values.pop(producer_id, None)
        values[producer_id] = value

    def _overrule(self, key: TopicPartition) -> None:
        """Mark the pending offsets of the partition as superseded: a later record outside of any transaction follows
        them.
        """
        values = self.pending.get(key, {})
        for producer_id in values:
            values[producer_id] = None
