"""The periodic searches: aborts of timed-out transactions, and removal of expired transactional ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from moldau.coordinator.transaction.init_producer_id import aborted_by_coordinator
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.step import TransactionStep
from moldau.coordinator.transaction.table import PENDING
from moldau.coordinator.transaction.transaction_state import DEAD, FORMER_STATES

ABORTS_MAX: Final = 1_000
"""The most transactions that one batch aborts; the others follow in later batches."""
EXAMINED_MAX: Final = 5_000
"""The most transactional ids that one step examines, so that other requests do not wait for the search."""


def abort_timed_out(step: TransactionStep, transaction_version: int) -> bool:
    """Abort the transactions that are older than their timeout. True where all of them are aborted.

    The epoch increases, so that the producer is fenced. Where the log refuses the batch, the next search finds the
    transactions again.
    """
    aborted = 0
    for transactional_id in step.transactions.ongoing:
        transaction = step.transactions.committed[transactional_id]
        if transaction.start_ms + transaction.timeout_ms >= step.wall_ms:
            continue
        if step.transactions.standing(transactional_id) is PENDING:
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


def expire(step: TransactionStep, transactional_ids: Iterator[str]) -> bool:
    """Remove expired transactional ids: those that no producer has used for `transactional.id.expiration.ms`. True
    where there are more to examine.

    Where the log refuses the tombstones, the next search finds the ids again.
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
        and step.transactions.standing(transactional_id) in FORMER_STATES[DEAD]
        and transaction.updated_ms <= step.wall_ms - step.config.id_expiration_ms
    )
