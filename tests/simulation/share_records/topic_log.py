"""The log of the partition that is shared, as record batches: plain ones, and transactions that commit or abort."""

from __future__ import annotations

import errno
from random import Random

from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.share.acquisition import FetchedBatch
from moldau.storage.log.reading import TimestampedOffset


class TopicLog:
    """Its only partition; it implements what a share partition uses of a log."""

    local_start_offset = 0

    def __init__(self, random: Random, lookups: Random | None = None) -> None:
        """`lookups`: draws which lookups by time fail; None if none does."""
        self.random = random
        self.lookups = lookups
        self.batches: list[FetchedBatch] = []
        self.end_offset = 0
        self.log_start_offset = 0
        self.markers: set[int] = set()
        """The offsets of control records."""
        self.compacted: set[int] = set()
        """The offsets that compaction removed."""
        self.aborted: set[int] = set()
        """The offsets of records whose transaction was aborted."""
        self.aborted_transactions: list[tuple[int, int]] = []
        """(first offset, producer id)"""
        self._open: dict[int, tuple[int, set[int]]] = {}
        """By producer, the first offset of its transaction, and all its offsets."""
        self._producers = 0

    @property
    def last_stable_offset(self) -> int:
        return min((first for first, _ in self._open.values()), default=self.end_offset)

    def append(self, size: int, producer_id: int = -1, *, is_transactional: bool = False, aborts: bool = False) -> None:
        first, self.end_offset = self.end_offset, self.end_offset + size
        self.batches.append(FetchedBatch(first, self.end_offset - 1, producer_id, is_transactional, aborts))

    def grow(self, transactions: float) -> None:
        """Some records more, of a transaction or not."""
        if self.random.random() >= transactions:
            self.append(self.random.randint(1, 9))
            return
        if not self._open or self.random.random() < 0.3:
            self._producers += 1
            self._open[self._producers] = (self.end_offset, set())
        producer_id = self.random.choice(list(self._open))
        if self._open[producer_id][1] and self.random.random() < 0.4:
            self.end_transaction(producer_id)
            return
        first = self.end_offset
        self.append(self.random.choice((1, 2, 5, 30)), producer_id, is_transactional=True)
        self._open[producer_id][1].update(range(first, self.end_offset))

    def end_transaction(self, producer_id: int) -> None:
        first, offsets = self._open.pop(producer_id)
        aborts = self.random.random() < 0.5
        self.markers.add(self.end_offset)
        self.append(1, producer_id, is_transactional=True, aborts=aborts)
        if aborts:
            self.aborted |= offsets
            self.aborted_transactions.append((first, producer_id))

    def end_transactions(self) -> None:
        for producer_id in [*self._open]:
            self.end_transaction(producer_id)

    def delete_some(self) -> None:
        """Retention, or an administrator: whole segments, or up to any offset."""
        if len(self.batches) > 6:
            self.log_start_offset = self.random.randint(self.log_start_offset, self.batches[2].last_offset)
            self.batches = [each for each in self.batches if each.last_offset >= self.log_start_offset]

    def compact(self) -> None:
        """A batch goes that is not the last one."""
        if len(self.batches) > 6:
            gone = self.batches.pop(self.random.randrange(len(self.batches) - 1))
            self.compacted.update(range(gone.first_offset, gone.last_offset + 1))

    @property
    def unread(self) -> set[int]:
        """The offsets that a client acknowledges as a gap."""
        return self.markers | self.compacted

    def read(self, offset: int, end_offset: int, batches_max: int) -> list[FetchedBatch]:
        """The batches from an offset on, below an end."""
        return [each for each in self.batches if each.last_offset >= offset and each.last_offset < end_offset][
            :batches_max
        ]

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """All records are young enough."""
        if self.lookups is not None and self.lookups.random() < 0.4:
            raise OSError(errno.EMFILE, "too many open files")
        return TimestampedOffset(timestamp, self.log_start_offset, 0)

    def error_of_lookup(self, error: OSError | MalformedMessage) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR
