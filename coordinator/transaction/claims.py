"""How a request names the producer of a transactional id."""

from __future__ import annotations

from coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_ID
from coordinator.transaction.table import CURRENT, FOREIGN, NEWER, OLDER, PREVIOUS, REPLACED, UNNAMED, Claim
from coordinator.transaction.transaction import LAST_EPOCH, Transaction


def claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> Claim:
    """Of a request within a transaction, or one that ends it."""
    if transaction is None:
        return FOREIGN
    if producer_id == transaction.producer_id:
        # DIVERGES: Apache takes any epoch right below the current one for that of a repeated EndTxn. After a
        # transaction of protocol 1, whose end moves no epoch, it gives its producer's epoch to the one that is fenced.
        if transaction.client_version >= EPOCH_BUMP_VERSION and producer_epoch + 1 == transaction.producer_epoch:
            return PREVIOUS
        return compared(transaction, producer_epoch)
    is_replaced = producer_id == transaction.previous_producer_id and transaction.producer_epoch == 0
    return REPLACED if is_replaced and producer_epoch == LAST_EPOCH else FOREIGN


def init_claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> Claim:
    """Of an InitProducerId."""
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
