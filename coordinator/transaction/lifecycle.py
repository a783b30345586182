"""The lifecycle of a transaction: InitProducerId gives the producer its id; AddPartitionsToTxn adds partitions before
records are sent to them; EndTxn stores the outcome, which is final once its record is committed; then each partition
gets a marker; when all markers are written, the completion is stored. Periodic searches abort transactions that have
timed out, and remove transactional ids that no producer uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from moldau.coordinator.runtime.step import ReplyWhenCommitted, write_error
from moldau.coordinator.transaction.events import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    PartitionErrors,
    ProducerIdAnswer,
    TopicPartition,
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.table import (
    BUMP,
    COMMIT,
    CONFIRM,
    CREATE,
    FENCE,
    PENDING,
    REPEAT,
    TABLE,
    RequestKind,
    TransactionMove,
    claim_of,
    init_claim_of,
)
from moldau.coordinator.transaction.transaction import (
    DEAD,
    EPOCH_MAX,
    FORMER_STATES,
    ONGOING,
    Transaction,
    as_completed_transaction,
    as_empty_transaction,
    as_fenced_transaction,
    as_prepared_transaction,
    new_transaction,
    with_new_producer_id,
    with_next_epoch,
    with_partitions,
)
from moldau.coordinator.transaction.transactions import TransactionStep, TransactionTimer, TransactionTimerKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.records.record_frames import is_storable

NO_IDS: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""The error if the broker has no producer ids left and waits for a block of them. The client tries again later."""
COMPLETION_RETRY_MS: Final = 100
"""The time (ms) after which a completion that the log refused is stored again."""
ABORTS_MAX: Final = 1_000
"""The most transactions that one batch aborts. Further transactions are aborted in later batches."""
EXAMINED_MAX: Final = 5_000
"""The most transactional ids that one step examines for expiry, so that other requests do not wait for the search."""


def init_producer_id(step: TransactionStep, event: InitProducerId) -> None:
    refusal = init_producer_error(step, event)
    if refusal is not ErrorCode.NONE:
        step.reply(event.waiter, ProducerIdAnswer(refusal))
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = init_claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[RequestKind.INIT][step.transactions.state_or_pending(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode):
        step.reply(event.waiter, ProducerIdAnswer(decision))
    elif decision is CREATE or before is None:
        create_producer(step, event)
    elif decision is FENCE:
        abort_for_new_producer(step, event, before)
    else:
        give_next_epoch(step, event, before, decision)


def init_producer_error(step: TransactionStep, event: InitProducerId) -> ErrorCode:
    """The error of an InitProducerId that is invalid by itself, because of its id, its epoch or its timeout. NONE if it
    is valid; then the state of the transactional id decides."""
    if not event.transactional_id or not is_storable(event.transactional_id):
        # DIVERGES: for an id above 32,767 bytes Apache Kafka answers UNKNOWN_SERVER_ERROR, after an exception while it
        # builds the record.
        return ErrorCode.INVALID_REQUEST
    if (event.producer_id == NO_PRODUCER_ID) is not (event.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not 0 < event.timeout_ms <= step.config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def create_producer(step: TransactionStep, event: InitProducerId) -> None:
    producer_id = step.next_producer_id()
    if producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    store_producer(step, event, new_transaction(producer_id, event.timeout_ms, step.wall_ms))


def give_next_epoch(step: TransactionStep, event: InitProducerId, before: Transaction, move: TransactionMove) -> None:
    """Give the producer the next epoch of the transactional id, and answer. The id has no open transaction. `move` says
    whether the producer starts, continues, or repeats a request.
    """
    timeout_ms, wall_ms = event.timeout_ms, step.wall_ms
    if move is REPEAT:
        # DIVERGES: for the last epoch of a producer id Apache Kafka answers UNKNOWN_SERVER_ERROR, after an exception.
        store_producer(step, event, as_empty_transaction(before, timeout_ms, wall_ms))
        return
    goes_on = move is BUMP
    if not before.is_exhausted:
        store_producer(step, event, with_next_epoch(before, timeout_ms, wall_ms, goes_on=goes_on))
        return
    producer_id = step.next_producer_id()
    if producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    store_producer(step, event, with_new_producer_id(before, producer_id, timeout_ms, wall_ms, goes_on=goes_on))


def store_producer(step: TransactionStep, event: InitProducerId, after: Transaction) -> None:
    step.store(event.transactional_id, after)
    step.answer_when_committed(event.waiter, ProducerIdAnswer(ErrorCode.NONE, after.producer_id, after.producer_epoch))


def abort_for_new_producer(step: TransactionStep, event: InitProducerId, before: Transaction) -> None:
    """Abort the open transaction of the earlier producer, and answer CONCURRENT_TRANSACTIONS.

    The client repeats its InitProducerId until the abort is complete.
    """
    after = aborted_by_coordinator(step, before, event.transaction_version)
    if after is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    step.store(event.transactional_id, after)
    step.answer_when_committed(event.waiter, ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))


def aborted_by_coordinator(step: TransactionStep, before: Transaction, transaction_version: int) -> Transaction | None:
    """The next state of a transaction that the coordinator aborts. Its epoch is higher than the producer's, so that the
    producer is fenced. Returns None if a new producer id is needed and the broker has none."""
    if transaction_version < EPOCH_BUMP_VERSION or before.producer_epoch == EPOCH_MAX:
        return as_fenced_transaction(before, step.wall_ms)
    next_producer_id = step.next_producer_id() if before.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        return None
    return as_prepared_transaction(
        before,
        is_commit=False,
        client_version=transaction_version,
        next_producer_id=next_producer_id,
        wall_ms=step.wall_ms,
    )


def add_partitions(step: TransactionStep, event: AddPartitions) -> None:
    if not event.transactional_id:
        step.reply(event.waiter, ErrorCode.INVALID_REQUEST)
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[RequestKind.ADD][step.transactions.state_or_pending(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or before is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no transaction"
        step.reply(event.waiter, decision)
        return
    partitions = frozenset(event.partitions)
    if before.state is ONGOING and partitions <= before.partitions:
        step.reply(event.waiter, ErrorCode.NONE)
        return
    step.store(event.transactional_id, with_partitions(before, partitions, event.client_version, step.wall_ms))
    step.when_committed(ReplyWhenCommitted(event.waiter, ErrorCode.NONE, write_error))


def verification_errors(step: TransactionStep, event: VerifyPartitions) -> PartitionErrors:
    """The answer to a `VerifyPartitions`: whether each partition is part of the transaction, by the committed state."""
    if not event.transactional_id:
        return dict.fromkeys(event.partitions, ErrorCode.INVALID_REQUEST)
    transaction = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(transaction, event.producer_id, event.producer_epoch)
    decision = TABLE[RequestKind.VERIFY][step.transactions.committed_state(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or transaction is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no partitions"
        return dict.fromkeys(event.partitions, decision)
    return {partition: membership_error(transaction, partition) for partition in event.partitions}


def membership_error(transaction: Transaction, partition: TopicPartition) -> ErrorCode:
    return ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE


def end_transaction(step: TransactionStep, event: EndTransaction) -> None:
    if not event.transactional_id:
        step.reply(event.waiter, ProducerIdAnswer(ErrorCode.INVALID_REQUEST))
        return
    before = step.transactions.committed.get(event.transactional_id)
    claim = claim_of(before, event.producer_id, event.producer_epoch)
    decision = TABLE[request_kind_of_end(event)][step.transactions.state_or_pending(event.transactional_id)][claim]
    if isinstance(decision, ErrorCode) or before is None:
        assert isinstance(decision, ErrorCode), "a transactional id that does not exist has no transaction to end"
        step.reply(event.waiter, ProducerIdAnswer(decision))
    elif decision is CONFIRM:
        step.reply(event.waiter, ProducerIdAnswer(ErrorCode.NONE, before.producer_id, before.producer_epoch))
    else:
        prepare_transaction_end(step, event, before, is_commit=decision is COMMIT)


def request_kind_of_end(event: EndTransaction) -> RequestKind:
    if event.client_version >= EPOCH_BUMP_VERSION:
        return RequestKind.COMMIT_2 if event.is_commit else RequestKind.ABORT_2
    return RequestKind.COMMIT_1 if event.is_commit else RequestKind.ABORT_1


def prepare_transaction_end(
    step: TransactionStep, event: EndTransaction, before: Transaction, *, is_commit: bool
) -> None:
    is_bumped = event.client_version >= EPOCH_BUMP_VERSION
    next_producer_id = step.next_producer_id() if is_bumped and before.is_exhausted else NO_PRODUCER_ID
    if next_producer_id is None:
        step.reply(event.waiter, ProducerIdAnswer(NO_IDS))
        return
    after = as_prepared_transaction(
        before,
        is_commit=is_commit,
        client_version=event.client_version,
        next_producer_id=next_producer_id,
        wall_ms=step.wall_ms,
    )
    step.store(event.transactional_id, after)
    answer = producer_id_answer(after) if is_bumped else ProducerIdAnswer(ErrorCode.NONE)
    step.answer_when_committed(event.waiter, answer)


def producer_id_answer(after: Transaction) -> ProducerIdAnswer:
    """Return the producer id and epoch with which a client of protocol 2 continues after the end of the transaction."""
    if after.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAnswer(ErrorCode.NONE, after.next_producer_id, 0)
    return ProducerIdAnswer(ErrorCode.NONE, after.producer_id, after.producer_epoch)


class CompletionWriteOutcome(NamedTuple):
    """The outcome of the record that completes a transaction. No client waits for it. If the log refuses the record, it
    is written again later."""

    transactional_id: str

    def on_committed(self, step: TransactionStep) -> None:
        pass

    def on_failed(self, step: TransactionStep, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:  # After this error the record may still be committed.
            key = TransactionTimerKey(TransactionTimer.COMPLETION, self.transactional_id)
            step.timers.schedule(key, step.now_ms + COMPLETION_RETRY_MS)


def send_markers(step: TransactionStep) -> None:
    """Give the command to write the commit or abort markers of each transaction that was prepared since the last call.
    A transaction without partitions needs no markers, and is completed at once."""
    for command in step.transactions.take_unsent_markers(step.coordinator_epoch):
        if command.partitions:
            step.command(command)
        else:
            complete_transaction(step, command.transactional_id)


def on_markers_written(step: TransactionStep, event: MarkersWritten) -> None:
    """Note the partitions in which the marker of a transaction is written. Once every partition has its marker,
    complete the transaction. A report about an earlier command for markers is ignored."""
    transactional_id = event.command.transactional_id
    completion = step.transactions.completions.get(transactional_id)
    if completion is None or completion.command != event.command or not completion.partitions_left:
        return
    completion.partitions_left -= event.partitions
    complete_transaction(step, transactional_id)


def complete_transaction(step: TransactionStep, transactional_id: str) -> None:
    """Write the record that completes a transaction, if the marker is written in every partition of the transaction."""
    completion = step.transactions.completions.get(transactional_id)
    if (
        completion is None
        or completion.partitions_left
        or step.transactions.state_or_pending(transactional_id) is PENDING
    ):
        return
    step.store(transactional_id, as_completed_transaction(step.transactions.committed[transactional_id], step.wall_ms))
    step.when_committed(CompletionWriteOutcome(transactional_id))


def abort_timed_out(step: TransactionStep, transaction_version: int) -> bool:
    """Abort the transactions that are older than their timeout. Returns False if there may be more, so that the caller
    continues later.

    The producer epoch increases, so that the producer is fenced. If the log refuses the batch, the next search finds
    the transactions again.
    """
    aborted = 0
    for transactional_id in step.transactions.ongoing:
        transaction = step.transactions.committed[transactional_id]
        if transaction.start_ms + transaction.timeout_ms >= step.wall_ms:
            continue
        if step.transactions.state_or_pending(transactional_id) is PENDING:
            continue
        after = aborted_by_coordinator(step, transaction, transaction_version)
        if after is None:
            continue
        step.store(transactional_id, after)
        step.note(transactional_id, f"its transaction is older than {transaction.timeout_ms} ms and is aborted")
        aborted += 1
        if aborted == ABORTS_MAX:
            return False
    return True


def expire_transactional_ids(step: TransactionStep, transactional_ids: Iterator[str]) -> bool:
    """Remove the transactional ids that no producer has used for `transactional.id.expiration.ms`. Examines the next
    `EXAMINED_MAX` ids of the iterator. Returns whether there may be more to examine.

    If the log refuses the tombstones, the next search finds the ids again.
    """
    examined = 0
    for transactional_id in islice(transactional_ids, EXAMINED_MAX):
        examined += 1
        if is_expired(step, transactional_id):
            step.write(TransactionChange(transactional_id, None))
            step.note(transactional_id, "it has expired")
    return examined == EXAMINED_MAX


def is_expired(step: TransactionStep, transactional_id: str) -> bool:
    transaction = step.transactions.committed.get(transactional_id)
    return (
        transaction is not None
        and step.transactions.state_or_pending(transactional_id) in FORMER_STATES[DEAD]
        and transaction.updated_ms <= step.wall_ms - step.config.id_expiration_ms
    )
