"""The driver's part in writing exactly once: it decides to commit, stores the decision, and ends the transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from moldau.spark_jobs.writing.transaction_log import TransactionLog
from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome
from moldau.tables.refusals import Refused, warn

EndTransaction: TypeAlias = Callable[[ProducerIdentity, bool], TransactionOutcome]
"""A function that ends a transaction: it commits it if the second argument is True, and otherwise aborts it."""


class TransactionsLost(Refused):
    """The coordinator had aborted transactions that were to be committed, because they exceeded their timeout."""


def commit_batch(
    log: TransactionLog | None, query: str, batch: int, transactions: Sequence[ProducerIdentity], end: EndTransaction
) -> None:
    """Commit the transactions of the tasks of a batch, or those of an earlier run of the same batch.

    Raises `TransactionsLost`, and OSError of the transaction log.
    """
    decided = log.read(query, batch) if log is not None else None
    if decided is None:
        _decide(log, query, batch, transactions, end)
        return
    lost = commit_all(decided, end)
    if decided and len(lost) == len(decided):
        _decide(log, query, batch, transactions, end)
        return
    abort_all(transactions, end)
    if lost:
        raise TransactionsLost(text_of_lost(query, batch, lost, len(decided)))


def abort_all(transactions: Sequence[ProducerIdentity], end: EndTransaction) -> None:
    """Abort the transactions that can be aborted now; the coordinator aborts the others after their timeout."""
    for each in transactions:
        try:
            end(each, False)
        except Refused as problem:
            warn(f"a transaction was not aborted, and holds read_committed readers up until its timeout: {problem}")


def commit_all(transactions: Sequence[ProducerIdentity], end: EndTransaction) -> list[ProducerIdentity]:
    """Commit all transactions. Returns the transactions that were already aborted."""
    return [each for each in transactions if end(each, True) is TransactionOutcome.LOST]


def text_of_lost(query: str, batch: int, lost: Sequence[ProducerIdentity], count: int) -> str:
    names = ", ".join(str(each.transactional_id) for each in lost)
    return (
        f"query {query}, batch {batch}: {len(lost)} of {count} transactions were aborted by their coordinator before "
        f"the driver committed them ({names}); kafka.transaction.timeout.ms is the time that they have"
    )


def _decide(
    log: TransactionLog | None, query: str, batch: int, transactions: Sequence[ProducerIdentity], end: EndTransaction
) -> None:
    if log is not None:
        log.write(query, batch, transactions)
    lost = commit_all(transactions, end)
    if lost:
        raise TransactionsLost(text_of_lost(query, batch, lost, len(transactions)))
