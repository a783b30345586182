"""Makes every transaction complete, or absent, in all restored logs, although the logs end at different instants.

A transaction stays committed if its coordinator decided the commit before the restore moment. All logs have its
records, because the source read the ends of the logs after the moment. A log without the commit marker gets one. If the
source could not read the end of `__transaction_state` first, the transaction stays committed only if every partition
has its marker. Every other transaction with records is aborted: an abort marker is appended, or its commit marker is
rewritten. If a transaction is aborted, these are aborted, too:

* the later transactions of its transactional id, which may depend on its records, and
* each transaction that commits an offset past the first record of the aborted one in a partition, because its consumer
  has read that record.

A transaction that was decided before the source read the first end is never aborted, because the transactions whose
records it has read were decided even earlier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from moldau.backup.observed import (
    LogObserver,
    LogTransaction,
    TransactionDecision,
    TransactionMarker,
    TransactionStateObserver,
    highest_producer_epochs,
)
from moldau.coordinator.group.records import TopicPartition
from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    EPOCH_MAX,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    as_completed_transaction,
)
from moldau.protocol.control_records import end_transaction_marker

NO_DECISIONS: Final[list[TransactionDecision]] = []


class AbortReason(Enum):
    """The reason why a restore aborts a transaction that was committed."""

    LATER = "it was committed after the moment"
    CUT = "some of its records lie beyond the moment"
    OPEN = "a log has no marker of it, and may lack records"
    FOLLOWS = "an earlier transaction of its transactional id is undone"
    DEPENDS = "it has read records of a transaction that is undone"


class AbortedTransaction(NamedTuple):
    """A committed transaction that a restore aborts."""

    decision: TransactionDecision
    reason: AbortReason
    cause: str = ""
    """The partition that is cut or lacks the marker, or the transactional id whose transaction was aborted before."""


class AppendedMarker(NamedTuple):
    """A marker that a restore appends, because a transaction has none in the restored log."""

    transactional_id: str | None
    """The transactional id of the producer; None if no record names it, because the id had expired or is newer than the
    restore moment.
    """
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partition: TopicPartition


@dataclass(slots=True)
class MarkerChanges:
    """The changes of the transaction markers of one log."""

    aborted_marker_offsets: set[int] = field(default_factory=set)
    """The offsets of the commit markers that become abort markers."""
    appended_markers: list[NewMarker] = field(default_factory=list)
    """The markers to append to the log."""


class NewMarker(NamedTuple):
    """A transaction marker to append, with its producer and coordinator epoch."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool

    def encode_batch(self, offset: int, leader_epoch: int, timestamp_ms: int) -> bytes:
        return end_transaction_marker(
            commits=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=timestamp_ms,
            base_offset=offset,
            partition_leader_epoch=leader_epoch,
        )


@dataclass(slots=True)
class TransactionRepairs:
    """The changes that make every transaction complete, or absent, in all restored logs."""

    aborted_transactions: list[AbortedTransaction] = field(default_factory=list)
    """The committed transactions that are aborted. Those without a record or a marker in any restored log are left out.
    """
    appended_markers: list[AppendedMarker] = field(default_factory=list)
    marker_changes_by_log: dict[TopicPartition, MarkerChanges] = field(default_factory=dict)
    """The changes of markers, by partition. A log without changes has no entry."""
    state_changes_by_partition: dict[int, list[TransactionChange]] = field(default_factory=dict)
    """The records to append to each partition of `__transaction_state`."""
    next_producer_id: int = 0
    """A producer id that is higher than every producer id in the logs."""


def find_transaction_repairs(
    logs: Mapping[TopicPartition, LogObserver], states: Mapping[int, TransactionStateObserver], moment_ms: int
) -> TransactionRepairs:
    """Find the changes that make every transaction complete or absent in all logs. All logs must have been observed to
    their ends.
    """
    return _Settling(logs, states, moment_ms).settled()


class _Settling:
    def __init__(
        self, logs: Mapping[TopicPartition, LogObserver], states: Mapping[int, TransactionStateObserver], moment_ms: int
    ) -> None:
        self._logs = logs
        self._states = states
        self._moment_ms = moment_ms
        self._decisions: dict[str, list[TransactionDecision]] = {}
        """The decisions by transactional id, in the order of the log."""
        self._listed: dict[tuple[int, TopicPartition], list[TransactionDecision]] = {}
        """The decisions by producer id and partition of the transaction, in the order of the log of
        `__transaction_state`."""
        self._alike: dict[tuple[int, TopicPartition, int, bool], list[TransactionDecision]] = {}
        """The decisions by producer id, partition, producer epoch and outcome. A marker has the same fields."""
        self._decided: dict[LogTransaction, TransactionDecision] = {}
        self._undone: dict[TransactionDecision, AbortedTransaction] = {}
        self._epochs = highest_producer_epochs(logs.values())
        self._owners: dict[int, tuple[str, int]] = {}
        """The transactional id of each producer id, and the partition of `__transaction_state` that has it."""
        self._aborted: set[int] = set()
        """The ids of producers whose transaction the restore aborts, although no decision before the restored moment
        aborted it."""
        self._result = TransactionRepairs()

    def settled(self) -> TransactionRepairs:
        self._index()
        for partition, log in self._logs.items():
            self._match(partition, log)
        self._undo()
        for partition, log in self._logs.items():
            self._change(partition, log)
        for states in self._states.values():
            self._settle_states(states)
        result = self._result
        touched = {id(decision) for decision in self._touched()}
        result.aborted_transactions = [each for each in self._undone.values() if id(each.decision) in touched]
        seen = [*self._epochs, *(states.producer_id_max for states in self._states.values())]
        result.next_producer_id = max(seen, default=-1) + 1
        return result

    def _index(self) -> None:
        for states in self._states.values():
            for decision in states.decisions:
                transactional_id, transaction = decision.transactional_id, decision.transaction
                producer_id = transaction.producer_id
                self._decisions.setdefault(transactional_id, []).append(decision)
                for partition in transaction.partitions:
                    self._listed.setdefault((producer_id, partition), []).append(decision)
                    said = producer_id, partition, transaction.producer_epoch, decision.is_commit
                    self._alike.setdefault(said, []).append(decision)
                self._owners[producer_id] = transactional_id, states.partition
            for transactional_id, (_, transaction) in states.state_by_transactional_id.items():
                self._owners[transaction.producer_id] = transactional_id, states.partition

    # Which decision each span belongs to

    def _match(self, partition: TopicPartition, log: LogObserver) -> None:
        last: dict[int, TransactionDecision] = {}
        for span in log.transactions:
            if span.marker is None:
                listed = self._listed.get((span.producer_id, partition), NO_DECISIONS)
                found = self._awaited_by(span, listed, last.get(span.producer_id))
            else:
                said = span.producer_id, partition, span.marker.producer_epoch, span.marker.is_commit
                found = self._marked_by(span.marker, self._alike.get(said, NO_DECISIONS))
            if found is not None:
                last[span.producer_id] = self._decided[span] = found
                found.transactions_by_partition.setdefault(partition, []).append(span)

    def _marked_by(self, marker: TransactionMarker, alike: list[TransactionDecision]) -> TransactionDecision | None:
        """Return the decision that a marker belongs to. `alike`: the decisions with the marker's outcome and producer
        epoch. Return None if compaction has removed the decision.

        In protocol 2 each transaction has its own epoch. In protocol 1 many transactions have the same epoch, and the
        time of the marker shows which of them it is.
        """
        if not alike or has_bumped_epoch(alike[0]):
            return alike[0] if alike else None
        place = bisect_right(alike, marker.timestamp_ms, key=lambda each: each.transaction.updated_ms)
        near = alike[max(0, place - 1) : place + 1]
        found = min(near, key=lambda each: each.distance_ms(marker.timestamp_ms))
        since_ms = self._states[found.state_partition].decisions_known_since_ms[found.transactional_id]
        return None if marker.timestamp_ms - since_ms < found.distance_ms(marker.timestamp_ms) else found

    def _awaited_by(
        self, span: LogTransaction, listed: list[TransactionDecision], last: TransactionDecision | None
    ) -> TransactionDecision | None:
        """Return the decision for the records of a transaction whose marker is not in the backup. Return None if the
        backup has no decision for it."""
        for each in listed:
            is_marked = self._states[each.state_partition].has_all_markers(each)
            is_after = last is None or each.offset > last.offset
            if is_after and not is_marked and may_end_transaction(each, span.producer_epoch):
                return each
        return None

    # Which transactions are undone

    def _undo(self) -> None:
        found: list[AbortedTransaction] = []
        for decision in self._committed():
            if decision.offset >= self._states[decision.state_partition].moment_offset:
                found.append(AbortedTransaction(decision, AbortReason.LATER))
            elif (cut := self._cut_in(decision)) is not None:
                found.append(AbortedTransaction(decision, AbortReason.CUT, f"{cut[0]}-{cut[1]}"))
            elif (open_in := self._open_in(decision)) is not None:
                found.append(AbortedTransaction(decision, AbortReason.OPEN, f"{open_in[0]}-{open_in[1]}"))
        readers = self._readers()
        while found:
            undone = found.pop()
            if undone.decision not in self._undone:
                self._undone[undone.decision] = undone
                found += self._dependents(undone.decision, readers)

    def _committed(self) -> Iterator[TransactionDecision]:
        for decisions in self._decisions.values():
            for decision in decisions:
                if decision.is_commit:
                    yield decision

    def _cut_in(self, decision: TransactionDecision) -> TopicPartition | None:
        """Return a partition in which a record of the transaction is past the end of the restored log. Return None if
        there is none.
        """
        for partition, spans in decision.transactions_by_partition.items():
            if any(span.last_offset >= self._logs[partition].end_offset for span in spans):
                return partition
        return None

    def _open_in(self, decision: TransactionDecision) -> TopicPartition | None:
        """Return a partition that may lack records of the transaction: its log has no marker of it, and the source did
        not ask for the ends of `__transaction_state` first. Return None if there is no such partition."""
        states = self._states[decision.state_partition]
        if states.end_offset_before_others is not None or states.has_all_markers(decision):
            return None
        for partition in sorted(decision.transaction.partitions):
            spans = decision.transactions_by_partition.get(partition, ())
            if partition in self._logs and all(span.marker is None for span in spans):
                return partition
        return None

    def _readers(self) -> dict[TopicPartition, list[tuple[int, TransactionDecision]]]:
        """The committed transactions that commit offsets of groups, as pairs of a committed offset and a decision, by
        partition."""
        readers: dict[TopicPartition, list[tuple[int, TransactionDecision]]] = {}
        for decision in self._committed():
            for spans in decision.transactions_by_partition.values():
                for span in spans:
                    for partition, offset in span.committed_offsets.items():
                        readers.setdefault(partition, []).append((offset, decision))
        return readers

    def _dependents(
        self, decision: TransactionDecision, readers: Mapping[TopicPartition, list[tuple[int, TransactionDecision]]]
    ) -> Iterator[AbortedTransaction]:
        name = decision.transactional_id
        for later in self._decisions[name]:
            if later.is_commit and later.offset > decision.offset:
                yield AbortedTransaction(later, AbortReason.FOLLOWS, name)
        for partition, spans in decision.transactions_by_partition.items():
            first = min((span.first_offset for span in spans if span.has_records), default=None)
            for offset, reader in readers.get(partition, ()):
                if first is not None and offset > first and reader is not decision:
                    yield AbortedTransaction(reader, AbortReason.DEPENDS, name)

    # What changes

    def _stays(self, decision: TransactionDecision | None) -> bool:
        return decision is not None and decision.is_commit and decision not in self._undone

    def _change(self, partition: TopicPartition, log: LogObserver) -> None:
        changes = MarkerChanges()
        for span in log.transactions:
            decision = self._decided.get(span)
            if span.marker is not None and span.marker.offset < log.end_offset:
                if decision in self._undone and span.marker.is_commit:
                    changes.aborted_marker_offsets.add(span.marker.offset)
                    self._aborted.add(span.producer_id)
            elif span.has_records and span.first_offset < log.end_offset:
                changes.appended_markers.append(self._marker_for(partition, span, decision))
        if changes.aborted_marker_offsets or changes.appended_markers:
            self._result.marker_changes_by_log[partition] = changes

    def _marker_for(
        self, partition: TopicPartition, span: LogTransaction, decision: TransactionDecision | None
    ) -> NewMarker:
        """Make the marker for the records of a transaction that has no marker in a log."""
        name, state_partition = self._owners.get(span.producer_id, (None, None))
        states = None if state_partition is None else self._states[state_partition]
        is_decided = decision is not None and states is not None and decision.offset < states.moment_offset
        is_commit = self._stays(decision)
        if decision is not None and is_decided and is_commit is decision.is_commit:
            epoch = decision.transaction.producer_epoch
        else:
            epoch = self._fence(span.producer_id)
            self._aborted.add(span.producer_id)
        self._result.appended_markers.append(AppendedMarker(name, span.producer_id, epoch, is_commit, partition))
        return NewMarker(span.producer_id, epoch, 0 if states is None else max(0, states.last_epoch), is_commit)

    def _fence(self, producer_id: int) -> int:
        """Return an epoch that fences a producer: the next epoch, as after a coordinator's abort of a transaction that
        has timed out."""
        name, state_partition = self._owners.get(producer_id, ("", None))
        known = None if state_partition is None else self._states[state_partition].state_by_transactional_id.get(name)
        epoch = self._epochs.get(producer_id, NO_PRODUCER_EPOCH)
        if known is not None and known.transaction.producer_id == producer_id:
            epoch = max(epoch, known.transaction.producer_epoch)
        return min(epoch + 1, EPOCH_MAX)

    def _settle_states(self, states: TransactionStateObserver) -> None:
        decisions = {decision.offset: decision for decision in states.decisions}
        records = []
        for transactional_id, (offset, before) in states.state_by_transactional_id.items():
            after = before
            if before.is_prepared:
                is_undone = before.state is PREPARE_COMMIT and decisions.get(offset) in self._undone
                after = self._ended(before) if is_undone else as_completed_transaction(before, self._moment_ms)
            elif before.state is ONGOING:
                after = self._ended(before)
            producer_id = after.producer_id
            is_behind = after.producer_epoch < self._epochs.get(producer_id, NO_PRODUCER_EPOCH)
            if is_behind or producer_id in self._aborted:
                after = self._ended(after)
            if after is not before:
                records.append(TransactionChange(transactional_id, after))
        if records:
            self._result.state_changes_by_partition[states.partition] = records

    def _ended(self, before: Transaction) -> Transaction:
        """Return the state of a transactional id after an abort that its producer does not know of. The new epoch
        fences the producer."""
        return before._replace(
            state=COMPLETE_ABORT,
            producer_epoch=self._fence(before.producer_id),
            partitions=frozenset(),
            previous_producer_id=before.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            updated_ms=self._moment_ms,
        )

    def _touched(self) -> Iterator[TransactionDecision]:
        """Yield the undone transactions of which a restored log has a record or a marker."""
        for decision in self._undone:
            for partition, spans in decision.transactions_by_partition.items():
                end_offset = self._logs[partition].end_offset
                if any(0 <= span.first_offset < end_offset for span in spans):
                    yield decision


def has_bumped_epoch(decision: TransactionDecision) -> bool:
    """Whether the producer epoch was bumped when the transaction ended. If so, no other transaction has its epoch."""
    return decision.transaction.client_version >= EPOCH_BUMP_VERSION


def may_end_transaction(decision: TransactionDecision, epoch: int) -> bool:
    """Whether a decision may have ended a transaction whose records have the producer epoch `epoch`."""
    decided = decision.transaction.producer_epoch
    bumped = min(epoch + 1, EPOCH_MAX)
    if has_bumped_epoch(decision):
        return decided == bumped
    return decided == epoch or (not decision.is_commit and decided == bumped)
