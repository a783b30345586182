"""The claim of a request: how its producer id and epoch compare with those of the transactional id."""

from __future__ import annotations

from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_ID
from moldau.coordinator.transaction.table import CURRENT, FOREIGN, NEWER, OLDER, PREVIOUS, REPLACED, UNNAMED, Claim
from moldau.coordinator.transaction.transaction import LAST_EPOCH, Transaction


def claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> Claim:
    """The claim of a request within a transaction, or of one that ends it."""
    if transaction is None:
        return FOREIGN
    if producer_id == transaction.producer_id:
        # DIVERGES: Apache Kafka takes the epoch just below the current one for a repeated EndTxn. After a transaction
        # of protocol 1, whose end does not increase the epoch, it thus returns the current epoch to the fenced
        # producer.
        if transaction.client_version >= EPOCH_BUMP_VERSION and producer_epoch + 1 == transaction.producer_epoch:
            return PREVIOUS
        return compared(transaction, producer_epoch)
    is_replaced = producer_id == transaction.previous_producer_id and transaction.producer_epoch == 0
    return REPLACED if is_replaced and producer_epoch == LAST_EPOCH else FOREIGN


def init_claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> Claim:
    """The claim of an InitProducerId."""
    if producer_id == NO_PRODUCER_ID:
        return UNNAMED
    if transaction is None:
        return FOREIGN
    is_replaced = producer_id == transaction.previous_producer_id and producer_epoch >= LAST_EPOCH
    if producer_id != transaction.producer_id and not is_replaced:
        return FOREIGN
    if producer_epoch == transaction.last_epoch:
        return PREVIOUS
    return compared(transaction, producer_epoch)


def compared(transaction: Transaction, producer_epoch: int) -> Claim:
    if producer_epoch == transaction.producer_epoch:
        return CURRENT
    return OLDER if producer_epoch < transaction.producer_epoch else NEWER
