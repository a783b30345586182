"""The machine over one partition of `__transaction_state`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.coordinator.runtime.shard import Shard
from moldau.coordinator.runtime.step import Timers
from moldau.coordinator.transaction.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    TopicPartition,
    TransactionConfig,
    TransactionEvent,
    VerifyPartitions,
)
from moldau.coordinator.transaction.lifecycle import (
    abort_timed_out,
    add_partitions,
    complete_transaction,
    end_transaction,
    expire_transactional_ids,
    init_producer_id,
    on_markers_written,
    send_markers,
    verification_errors,
)
from moldau.coordinator.transaction.records import TransactionChange, record_of
from moldau.coordinator.transaction.transaction import NAMES, Transaction
from moldau.coordinator.transaction.transactions import (
    Transactions,
    TransactionStep,
    TransactionTimer,
    TransactionTimerKey,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_transactions import TransactionState as ListedTransaction
from moldau.protocol.record_builder import Record

ABORTS_KEY: Final = TransactionTimerKey(TransactionTimer.ABORTS)
EXPIRY_KEY: Final = TransactionTimerKey(TransactionTimer.EXPIRY)
SEARCH_PAUSE_MS: Final = 100
"""The pause (ms) of a search after a full batch. In the pause other requests are handled, and a log that refuses writes
may recover."""


class TransactionShard(Shard[TransactionEvent, TransactionChange, TransactionStep]):
    """The machine of the transaction coordinator: a `StateMachine[TransactionEvent, TransactionChange]`."""

    def __init__(
        self,
        config: TransactionConfig,
        committed_end_offset: int,
        coordinator_epoch: int,
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
    ) -> None:
        super().__init__(committed_end_offset)
        self.config = config
        """The settings of transactions. The broker may replace them at any time."""
        self._coordinator_epoch = coordinator_epoch
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version
        self._transactions = Transactions()
        self._timers: Timers[TransactionTimerKey] = Timers()
        self._expiring: Iterator[str] | None = None
        """The transactional ids that the current search for expired ids has not examined yet; None while no search
        runs."""

    # Replaying

    def replay(self, change: TransactionChange, end_offset: int) -> None:
        """Apply a change of the log. A change that is replayed while the shard loads counts as committed."""
        if self.is_loaded:
            self._transactions.append(change, end_offset)
        else:
            self._transactions.apply(change)

    def commit(self) -> None:
        self._transactions.commit(self.committed_end_offset)

    def follow_commit(self, step: TransactionStep) -> None:
        if self.is_loaded:
            send_markers(step)

    # Deciding

    @property
    def commit_timeout_ms(self) -> int:
        return self.config.commit_timeout_ms

    def begin(self, now_ms: int, wall_ms: int) -> TransactionStep:
        return TransactionStep(
            now_ms,
            wall_ms,
            self.config,
            self._transactions,
            self._timers,
            self._coordinator_epoch,
            self._next_producer_id,
        )

    def record_of(self, change: TransactionChange, wall_ms: int) -> Record:
        return record_of(change, self._transaction_version(), wall_ms)

    def decide(self, step: TransactionStep, request: TransactionEvent) -> None:
        match request:
            case AddPartitions():
                add_partitions(step, request)
            case VerifyPartitions():
                step.reply(request.waiter, verification_errors(step, request))
            case EndTransaction():
                end_transaction(step, request)
            case MarkersWritten():
                on_markers_written(step, request)
            case InitProducerId():
                init_producer_id(step, request)

    def on_loaded(self, step: TransactionStep) -> None:
        """Start the timers, and send the markers of every transaction that an earlier coordinator prepared and did not
        complete."""
        self._timers.schedule(ABORTS_KEY, step.now_ms + self.config.abort_interval_ms)
        self._timers.schedule(EXPIRY_KEY, step.now_ms + self.config.id_cleanup_interval_ms)
        send_markers(step)

    def on_unloaded(self, step: TransactionStep) -> None:
        """Do nothing: all waiting requests wait for a commit, and the base class refuses them."""

    def next_timer_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def fire_timer(self, step: TransactionStep) -> None:
        key = self._timers.pop_due(step.now_ms)
        if key is None:
            return
        match key.kind:
            case TransactionTimer.ABORTS:
                is_done = abort_timed_out(step, self._transaction_version())
                pause_ms = self.config.abort_interval_ms if is_done else SEARCH_PAUSE_MS
                self._timers.schedule(ABORTS_KEY, step.now_ms + pause_ms)
            case TransactionTimer.EXPIRY:
                self._expire(step)
            case TransactionTimer.COMPLETION:
                complete_transaction(step, key.transactional_id)

    def _expire(self, step: TransactionStep) -> None:
        """Begin a search for expired transactional ids, or continue the current search."""
        if self._expiring is None:
            self._expiring = iter(tuple(self._transactions.committed))
        if expire_transactional_ids(step, self._expiring):
            self._timers.schedule(EXPIRY_KEY, step.now_ms + SEARCH_PAUSE_MS)
        else:
            self._expiring = None
            self._timers.schedule(EXPIRY_KEY, step.now_ms + self.config.id_cleanup_interval_ms)

    # Reading

    def counts_by_state(self) -> Mapping[str, int]:
        """The number of transactional ids by Kafka's name of their state, for the metrics."""
        return Counter(NAMES[transaction.state] for transaction in self._transactions.committed.values())

    def describe(self, transactional_id: str) -> TransactionDescription | ErrorCode:
        """Describe the committed state of a transactional id, for DescribeTransactions. Returns an error if the id does
        not exist."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._transactions.committed.get(transactional_id)
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transaction is None else description_of(transaction)

    def list_transactions(
        self, state_filters: Collection[str], producer_ids: Collection[int], duration_ms: int, wall_ms: int
    ) -> Iterator[ListedTransaction | None]:
        """Yield the transactional ids that pass all filters, for ListTransactions, and None for each id that does not.
        The caller may pause between ids, because there may be many; the transactions may change in the meantime.

        An empty filter and a negative duration let every id pass. The duration of an id without a transaction counts as
        infinite, as in Apache Kafka.
        """
        states = {state for state, name in NAMES.items() if name in state_filters}
        producer_ids = frozenset(producer_ids)
        for transactional_id, transaction in [*self._transactions.committed.items()]:
            is_listed = (
                (not producer_ids or transaction.producer_id in producer_ids)
                and (not state_filters or transaction.state in states)
                and (duration_ms < 0 or wall_ms - transaction.start_ms > duration_ms)
            )
            yield list_entry(transactional_id, transaction) if is_listed else None


class TransactionDescription(NamedTuple):
    """The description of a transactional id for DescribeTransactions."""

    state: str
    timeout_ms: int
    start_ms: int
    """The wall-clock time (ms) at which the transaction began; -1 if the producer has not begun one."""
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def description_of(transaction: Transaction) -> TransactionDescription:
    return TransactionDescription(
        NAMES[transaction.state],
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        tuple(sorted(transaction.partitions)),
    )


def list_entry(transactional_id: str, transaction: Transaction) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=NAMES[transaction.state],
    )
