"""Observing the logs of a backup for `settling.py`: the transactions in each log near the time to which a restore takes
it back, and the decisions of their coordinators.

A log is observed batch by batch, in order, up to the end that the backup has. Only numbers are kept of a batch.
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
WINDOW_MS: Final = 600_000
"""The largest distance (ms) between the restored moment and a marker that may have to change. A marker further away is
final: the ends of all logs were asked for within seconds, and no clock of a broker is that wrong."""
FUTURE_MS: Final = 3_600_000
"""The largest distance (ms) by which a plausible timestamp is later than the backup. A timestamp beyond it was not the
time of its batch, and is ignored.
"""


class Moment(NamedTuple):
    """The moment to which a restore takes the logs back."""

    time_ms: int
    """The time of the moment (ms since 1970)."""
    is_asked: bool = False
    """Whether a user asked for this time. If so, each log ends before its first batch that is later. If not, it is the
    begin of the backup, whose manifest has the ends of the logs."""
    asked_ms: int = 0
    """The time at which the backup had the ends of all logs (ms since 1970)."""

    def is_past(self, timestamp_ms: int) -> bool:
        """Whether a batch with this largest timestamp is later than the restored moment."""
        return self.is_asked and self.time_ms < timestamp_ms <= self.asked_ms + FUTURE_MS

    def is_long_past(self, timestamp_ms: int) -> bool:
        """Whether a batch with this largest timestamp is so late that no batch after it matters for the restored
        moment."""
        return self.is_past(timestamp_ms - WINDOW_MS)

    def is_near(self, timestamp_ms: int) -> bool:
        """Whether a marker with this timestamp is so close to the restored moment that it may have to change."""
        return abs(timestamp_ms - self.time_ms) <= WINDOW_MS


class Marker(NamedTuple):
    """The marker that ends a transaction in one log."""

    offset: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    timestamp_ms: int


@dataclass(slots=True, eq=False)
class Span:
    """The records of one transaction in one log, and the marker that ends them. A marker without records is a span,
    too."""

    producer_id: int
    producer_epoch: int
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    """The last offset of the transaction's records in this log."""
    marker: Marker | None = None
    commits: dict[TopicPartition, int] = field(default_factory=dict)
    """In a log of `__consumer_offsets`, the offsets that the transaction commits: for each partition the largest over
    all groups."""

    @property
    def has_records(self) -> bool:
        return self.first_offset != NO_OFFSET


class ObservedLog:
    """Observes one log: its end after the restore, and its transactions."""

    def __init__(self, end_offset: int, moment: Moment, *, has_commits: bool = False) -> None:
        self.end_offset = end_offset
        """The end offset of the restored log before the restore appends to it. If a user asked for a time, this offset
        is known once the log has been read up to that time."""
        self.cut_ms: int | None = None
        """The timestamp of the batch before which the log is cut; None if it is not cut."""
        self.last_epoch = -1
        """The highest leader epoch of a batch below `end_offset`."""
        self.coordinator_epoch = -1
        """The highest coordinator epoch in a marker below `end_offset`."""
        self.producer_epochs: dict[int, int] = {}
        """The highest epoch of each producer below `end_offset`, by producer id."""
        self.spans: list[Span] = []
        """The transactions near the restored moment, in the order of their markers. `finish` appends the transactions
        that are still open."""
        self._moment = moment
        self._has_commits = has_commits
        self._open: dict[int, Span] = {}

    @property
    def moment_offset(self) -> int:
        """The same as `end_offset`, under the name that `ObservedStates` has."""
        return self.end_offset

    def observe(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Note the next batch. Returns False if no later batch matters for the restore. Raises `MalformedMessage`."""
        if self.cut_ms is None and self._moment.is_past(header.max_timestamp):
            self.end_offset, self.cut_ms = min(self.end_offset, header.base_offset), header.max_timestamp
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

    def finish(self, start_offset: int = 0) -> None:
        """Note that the log was read to its end in the backup. A transaction that is open now has no marker in the
        backup. The restored log does not end before `start_offset`."""
        self.end_offset = max(self.end_offset, start_offset)
        self.spans += self._open.values()
        self._open = {}

    def _is_awaiting(self) -> bool:
        """Whether a transaction that began below `end_offset` has no marker yet."""
        return any(span.first_offset < self.end_offset for span in self._open.values())

    def _extend_span(self, header: BatchHeader, batch: BytesLike) -> None:
        span = self._open.get(header.producer_id)
        if span is None:
            span = self._open[header.producer_id] = Span(header.producer_id, header.producer_epoch, header.base_offset)
        span.producer_epoch, span.last_offset = header.producer_epoch, header.last_offset
        if self._has_commits:
            for record in records_of(batch, 0, header):
                change = group_change_of(record)
                if isinstance(change, OffsetChange) and change.value is not None:
                    key = change.topic, change.partition
                    span.commits[key] = max(span.commits.get(key, 0), change.value.offset)

    def _end_span(self, header: BatchHeader, batch: BytesLike) -> None:
        found = read_transaction_marker(batch)
        if found is None:
            return
        span = self._open.pop(header.producer_id, None) or Span(header.producer_id, header.producer_epoch)
        marker = Marker(
            header.base_offset, header.producer_epoch, found.is_commit, found.coordinator_epoch, header.max_timestamp
        )
        if marker.offset < self.end_offset:
            self.coordinator_epoch = max(self.coordinator_epoch, marker.coordinator_epoch)
        span.marker = marker
        is_split = span.has_records and span.first_offset < self.end_offset <= marker.offset
        if is_split or self._moment.is_near(marker.timestamp_ms):
            self.spans.append(span)


@dataclass(slots=True, eq=False)
class Decision:
    """A decision of a coordinator: the record PrepareCommit or PrepareAbort with the outcome of one transaction."""

    transactional_id: str
    state_partition: int
    offset: int
    """The offset of the record PrepareCommit or PrepareAbort."""
    leader_epoch: int
    """The leader epoch of the record's batch, which is the epoch of the coordinator."""
    transaction: Transaction
    completed_offset: int | None = None
    """The offset of the record CompleteCommit or CompleteAbort of the transaction; None if the backup has none."""
    completed_ms: int | None = None
    spans: dict[TopicPartition, list[Span]] = field(default_factory=dict)
    """The records and markers of the transaction in each partition. There may be several spans, because a coordinator
    may write a marker twice.
    """

    @property
    def is_commit(self) -> bool:
        return self.transaction.state is PREPARE_COMMIT

    def distance_ms(self, marker_ms: int) -> int:
        """The distance (ms) of a marker's timestamp from the time in which the coordinator wrote the markers of this
        decision."""
        until = self.completed_ms if self.completed_ms is not None else marker_ms
        return max(0, self.transaction.updated_ms - marker_ms, marker_ms - until)


class KnownState(NamedTuple):
    """The state of a transactional id at the restored moment, and the offset of its record."""

    offset: int
    transaction: Transaction


class ObservedStates:
    """Observes one partition of `__transaction_state`: the decisions of its coordinator, and the states of its
    transactional ids."""

    def __init__(self, partition: int, end_offset: int, decided_offset: int | None, moment: Moment) -> None:
        self.partition = partition
        self.end_offset = end_offset
        """The end offset of the log in the backup. Records after the restored moment are read as well, because they
        show which marker belongs to which transaction."""
        self.decided_offset = decided_offset
        """The end offset of this log that the source was asked for before the end of any other log. A transaction that
        was decided before this offset has all its records in the backup, and a transaction that was complete before it
        has all its markers. None if the source could not ask in this order."""
        self.moment_offset = end_offset if decided_offset is None else decided_offset
        """The end offset of this log at the restored moment, which is the end of the restored log before the restore
        appends to it."""
        self.cut_ms: int | None = None
        """The timestamp of the batch before which the log is cut; None if it is not cut."""
        self.last_epoch = -1
        """The highest leader epoch of a batch below `moment_offset`."""
        self.known: dict[str, KnownState] = {}
        """The state of each transactional id at the restored moment."""
        self.decisions: list[Decision] = []
        """The decisions near the restored moment, in the order of the log."""
        self.known_since_ms: dict[str, int] = {}
        """The time (ms) since which all decisions of a transactional id are known, by transactional id. Compaction has
        removed earlier decisions."""
        self.producer_id_max = -1
        self._moment = moment
        self._prepared: dict[str, Decision] = {}

    def observe(self, header: BatchHeader, batch: BytesLike) -> bool:
        """Note the next batch of the log. Returns True, because every batch matters. Raises `MalformedMessage`."""
        if self.cut_ms is None and self._moment.is_past(header.max_timestamp):
            self.moment_offset, self.cut_ms = min(self.moment_offset, header.base_offset), header.max_timestamp
        if header.base_offset < self.moment_offset:
            self.last_epoch = max(self.last_epoch, header.partition_leader_epoch)
        if not header.is_control:
            for record in records_of(batch, 0, header):
                change = change_of(record)
                if change is not None:
                    self._note(record.offset, header.partition_leader_epoch, *change)
        return True

    def finish(self, start_offset: int = 0) -> None:
        """Note that the log was read to its end. The restored log does not end before `start_offset`."""
        self.moment_offset = max(self.moment_offset, start_offset)

    def has_all_markers(self, decision: Decision) -> bool:
        """Whether the backup has the markers of a decision in all logs, as far as `__transaction_state` tells."""
        if decision.completed_offset is None or decision.completed_ms is None:
            return False
        if self.decided_offset is not None:
            return decision.completed_offset < self.decided_offset
        return decision.completed_ms < self._moment.time_ms - WINDOW_MS // 2

    def _note(self, offset: int, leader_epoch: int, transactional_id: str, transaction: Transaction | None) -> None:
        former = self._prepared.pop(transactional_id, None)
        if transaction is None:
            if offset < self.moment_offset:
                self.known.pop(transactional_id, None)
            return
        self.producer_id_max = max(self.producer_id_max, transaction.producer_id, transaction.next_producer_id)
        begun_ms = transaction.start_ms if transaction.is_prepared else transaction.updated_ms
        self.known_since_ms.setdefault(transactional_id, begun_ms)
        if offset < self.moment_offset:
            self.known[transactional_id] = KnownState(offset, transaction)
        if former is not None and transaction.state is not EMPTY:
            former.completed_offset, former.completed_ms = offset, transaction.updated_ms
        if not transaction.is_prepared:
            return
        decision = Decision(transactional_id, self.partition, offset, leader_epoch, transaction)
        self._prepared[transactional_id] = decision
        if transaction.updated_ms >= self._moment.time_ms - 2 * WINDOW_MS:
            self.decisions.append(decision)
        else:
            self.known_since_ms[transactional_id] = transaction.updated_ms


def highest_epochs(logs: Iterable[ObservedLog]) -> dict[int, int]:
    """The highest epoch of each producer in any of the logs."""
    highest: dict[int, int] = {}
    for log in logs:
        for producer_id, epoch in log.producer_epochs.items():
            highest[producer_id] = max(highest.get(producer_id, -1), epoch)
    return highest
