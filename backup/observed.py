"""Finds the transactions near the restore moment in the logs of a backup, and the decisions of their coordinators.

Each log is read batch by batch, up to its end in the backup. Of a batch only offsets, producer ids, epochs and
timestamps are kept, and no records. `settling.py` uses the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.coordinator.group.records import OffsetChange, TopicPartition
from moldau.coordinator.shard.kinds import change_of as group_change_of
from moldau.coordinator.transaction.records import change_of
from moldau.coordinator.transaction.transaction import EMPTY, PREPARE_COMMIT, Transaction
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of
from moldau.storage.producers.producer_state import read_transaction_marker

NO_OFFSET: Final = -1
MARKER_DISTANCE_MS_MAX: Final = 600_000
"""The maximum distance (ms) from the restore moment of a marker that may have to change. Markers further away are
final, because the ends of all logs were read within seconds, and brokers' clocks differ less than this.
"""
CLOCK_SKEW_MS_MAX: Final = 3_600_000
"""The maximum time (ms) by which a timestamp may be later than the backup. A later timestamp is ignored, because it
cannot be the time of its batch.
"""


class RestoreMoment(NamedTuple):
    """The moment to which a restore takes the logs back."""

    time_ms: int
    """The time of the moment (ms since 1970)."""
    is_requested_time: bool = False
    """Whether a user requested this time. Each log then ends before its first later batch. Otherwise the moment is the
    start of the backup, and the logs end where the manifest says.
    """
    ends_known_ms: int = 0
    """The time (ms since 1970) when the backup knew the ends of all logs."""

    def is_past(self, timestamp_ms: int) -> bool:
        """Whether a batch with this largest timestamp (ms) is later than a requested time, so that the restored log
        ends before it. False if no time was requested."""
        return self.is_requested_time and self.time_ms < timestamp_ms <= self.ends_known_ms + CLOCK_SKEW_MS_MAX

    def is_long_past(self, timestamp_ms: int) -> bool:
        """Whether a batch with this largest timestamp (ms) is more than `MARKER_DISTANCE_MS_MAX` later than a requested
        time."""
        return self.is_past(timestamp_ms - MARKER_DISTANCE_MS_MAX)

    def is_near(self, timestamp_ms: int) -> bool:
        """Whether a marker with this timestamp (ms) is so close to the moment that the restore may have to change
        it."""
        return abs(timestamp_ms - self.time_ms) <= MARKER_DISTANCE_MS_MAX


class TransactionMarker(NamedTuple):
    """The marker that ends a transaction in one log."""

    offset: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    timestamp_ms: int


@dataclass(slots=True, eq=False)
class LogTransaction:
    """The records of one transaction in one log, and the marker that ends them. It may have a marker and no records."""

    producer_id: int
    producer_epoch: int
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    """The offset of the transaction's last record in this log."""
    marker: TransactionMarker | None = None
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets that the transaction commits, if the log is of `__consumer_offsets`: for each partition the largest
    over all groups.
    """

    @property
    def has_records(self) -> bool:
        return self.first_offset != NO_OFFSET


class LogObserver:
    """Observes one log: the end that it gets in the restore, and its transactions."""

    def __init__(self, end_offset: int, moment: RestoreMoment, *, has_commits: bool = False) -> None:
        self.end_offset = end_offset
        """The end offset that the log gets in the restore, before markers are appended. For a requested time it is
        known when the log was read up to that time.
        """
        self.first_cut_batch_ms: int | None = None
        """The timestamp of the first batch that is cut off; None if the log is not cut."""
        self.last_epoch = -1
        """The highest leader epoch of a batch below `end_offset`."""
        self.coordinator_epoch = -1
        """The highest coordinator epoch in a marker below `end_offset`."""
        self.producer_epochs: dict[int, int] = {}
        """The highest epoch of each producer below `end_offset`, by producer id."""
        self.transactions: list[LogTransaction] = []
        """The transactions near the restore moment, in the order of their markers. `finish_log` appends those that are
        still open.
        """
        self._moment = moment
        self._has_commits = has_commits
        self._open: dict[int, LogTransaction] = {}

    @property
    def moment_offset(self) -> int:
        """The end offset of the restored log, under the name that `TransactionStateObserver` has for it."""
        return self.end_offset

    def observe_batch(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Observe the next batch. Returns False if the restore does not depend on any later batch. Raises
        `MalformedMessage`."""
        if self.first_cut_batch_ms is None and self._moment.is_past(header.max_timestamp):
            self.end_offset, self.first_cut_batch_ms = min(self.end_offset, header.base_offset), header.max_timestamp
        is_kept = header.base_offset < self.end_offset
        if is_kept:
            self.last_epoch = max(self.last_epoch, header.partition_leader_epoch)
        if header.has_producer_id:
            if is_kept:
                known = self.producer_epochs.get(header.producer_id, -1)
                self.producer_epochs[header.producer_id] = max(known, header.producer_epoch)
            if header.is_control:
                self._end_span(header, batch)
            elif header.is_transactional:
                self._extend_span(header, batch)
        return is_kept or not self._moment.is_long_past(header.max_timestamp) or self._is_awaiting()

    def finish_log(self, start_offset: int = 0) -> None:
        """Note that the log was read to its end in the backup. Transactions that are still open now have no marker in
        the backup. The restored log does not end before `start_offset`.
        """
        self.end_offset = max(self.end_offset, start_offset)
        self.transactions += self._open.values()
        self._open = {}

    def _is_awaiting(self) -> bool:
        """Whether a transaction that began below `end_offset` has no marker yet."""
        return any(span.first_offset < self.end_offset for span in self._open.values())

    def _extend_span(self, header: BatchHeader, batch: BytesLike) -> None:
        span = self._open.get(header.producer_id)
        if span is None:
            span = self._open[header.producer_id] = LogTransaction(
                header.producer_id, header.producer_epoch, header.base_offset
            )
        span.producer_epoch, span.last_offset = header.producer_epoch, header.last_offset
        if self._has_commits:
            for record in records_of(batch, 0, header):
                change = group_change_of(record)
                if isinstance(change, OffsetChange) and change.value is not None:
                    key = change.topic, change.partition
                    span.committed_offsets[key] = max(span.committed_offsets.get(key, 0), change.value.offset)

    def _end_span(self, header: BatchHeader, batch: BytesLike) -> None:
        found = read_transaction_marker(batch)
        if found is None:
            return
        span = self._open.pop(header.producer_id, None) or LogTransaction(header.producer_id, header.producer_epoch)
        marker = TransactionMarker(
            header.base_offset, header.producer_epoch, found.is_commit, found.coordinator_epoch, header.max_timestamp
        )
        if marker.offset < self.end_offset:
            self.coordinator_epoch = max(self.coordinator_epoch, marker.coordinator_epoch)
        span.marker = marker
        is_split = span.has_records and span.first_offset < self.end_offset <= marker.offset
        if is_split or self._moment.is_near(marker.timestamp_ms):
            self.transactions.append(span)


@dataclass(slots=True, eq=False)
class TransactionDecision:
    """A coordinator's decision about a transaction: a PrepareCommit or PrepareAbort record."""

    transactional_id: str
    state_partition: int
    offset: int
    """The offset of the record PrepareCommit or PrepareAbort."""
    leader_epoch: int
    """The leader epoch of the record's batch. It is the coordinator epoch."""
    transaction: Transaction
    completed_offset: int | None = None
    """The offset of the matching CompleteCommit or CompleteAbort record; None if the backup has none."""
    completed_ms: int | None = None
    transactions_by_partition: dict[TopicPartition, list[LogTransaction]] = field(default_factory=dict)
    """The parts of the transaction in each log. One log may have several parts, because a coordinator may write a
    marker twice.
    """

    @property
    def is_commit(self) -> bool:
        return self.transaction.state is PREPARE_COMMIT

    def distance_ms(self, marker_ms: int) -> int:
        """The distance (ms) of a marker's timestamp from the period in which the coordinator wrote the markers of this
        decision; 0 within the period.
        """
        until = self.completed_ms if self.completed_ms is not None else marker_ms
        return max(0, self.transaction.updated_ms - marker_ms, marker_ms - until)


class TransactionalIdState(NamedTuple):
    """The state of a transactional id at the restore moment, and the offset of its record."""

    offset: int
    transaction: Transaction


class TransactionStateObserver:
    """Observes one partition of `__transaction_state`: the coordinator's decisions, and the state of each transactional
    id.
    """

    def __init__(self, partition: int, end_offset: int, decided_offset: int | None, moment: RestoreMoment) -> None:
        self.partition = partition
        self.end_offset = end_offset
        """The end offset of the log in the backup. Records after the restore moment are read, too, because they tell
        which marker belongs to which transaction.
        """
        self.end_offset_before_others = decided_offset
        """The end offset of this log, read before the end of any other log; None if the source could not read it first.
        For a decision below it, the backup has all records of the transaction. For a completion below it, the backup
        has all markers.
        """
        self.moment_offset = end_offset if decided_offset is None else decided_offset
        """The end offset of this log at the restore moment. The restored log ends here before records are appended."""
        self.first_cut_batch_ms: int | None = None
        """The timestamp of the first batch that is cut off; None if the log is not cut."""
        self.last_epoch = -1
        """The highest leader epoch of a batch below `moment_offset`."""
        self.state_by_transactional_id: dict[str, TransactionalIdState] = {}
        """The state of each transactional id at the restore moment."""
        self.decisions: list[TransactionDecision] = []
        """The decisions near the restore moment, in the order of the log."""
        self.decisions_known_since_ms: dict[str, int] = {}
        """The time (ms) from which on all decisions are known, by transactional id. Compaction has removed earlier
        ones.
        """
        self.producer_id_max = -1
        self._moment = moment
        self._prepared: dict[str, TransactionDecision] = {}

    def observe_batch(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Observe the next batch of the log. Always returns True, because every batch matters. Raises
        `MalformedMessage`.
        """
        if self.first_cut_batch_ms is None and self._moment.is_past(header.max_timestamp):
            self.moment_offset, self.first_cut_batch_ms = (
                min(self.moment_offset, header.base_offset),
                header.max_timestamp,
            )
        if header.base_offset < self.moment_offset:
            self.last_epoch = max(self.last_epoch, header.partition_leader_epoch)
        if not header.is_control:
            for record in records_of(batch, 0, header):
                change = change_of(record)
                if change is not None:
                    self._note(record.offset, header.partition_leader_epoch, *change)
        return True

    def finish_log(self, start_offset: int = 0) -> None:
        """Note that the log was read to its end. The restored log does not end before `start_offset`."""
        self.moment_offset = max(self.moment_offset, start_offset)

    def has_all_markers(self, decision: TransactionDecision) -> bool:
        """Whether `__transaction_state` in the backup shows that the markers of a decision are in all logs."""
        if decision.completed_offset is None or decision.completed_ms is None:
            return False
        if self.end_offset_before_others is not None:
            return decision.completed_offset < self.end_offset_before_others
        return decision.completed_ms < self._moment.time_ms - MARKER_DISTANCE_MS_MAX // 2

    def _note(self, offset: int, leader_epoch: int, transactional_id: str, transaction: Transaction | None) -> None:
        former = self._prepared.pop(transactional_id, None)
        if transaction is None:
            if offset < self.moment_offset:
                self.state_by_transactional_id.pop(transactional_id, None)
            return
        self.producer_id_max = max(self.producer_id_max, transaction.producer_id, transaction.next_producer_id)
        begun_ms = transaction.start_ms if transaction.is_prepared else transaction.updated_ms
        self.decisions_known_since_ms.setdefault(transactional_id, begun_ms)
        if offset < self.moment_offset:
            self.state_by_transactional_id[transactional_id] = TransactionalIdState(offset, transaction)
        if former is not None and transaction.state is not EMPTY:
            former.completed_offset, former.completed_ms = offset, transaction.updated_ms
        if not transaction.is_prepared:
            return
        decision = TransactionDecision(transactional_id, self.partition, offset, leader_epoch, transaction)
        self._prepared[transactional_id] = decision
        if transaction.updated_ms >= self._moment.time_ms - 2 * MARKER_DISTANCE_MS_MAX:
            self.decisions.append(decision)
        else:
            self.decisions_known_since_ms[transactional_id] = transaction.updated_ms


def highest_producer_epochs(logs: Iterable[LogObserver]) -> dict[int, int]:
    """The highest epoch of each producer over all logs, by producer id."""
    highest: dict[int, int] = {}
    for log in logs:
        for producer_id, epoch in log.producer_epochs.items():
            highest[producer_id] = max(highest.get(producer_id, -1), epoch)
    return highest
