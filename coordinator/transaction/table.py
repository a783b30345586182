"""The decision table of the transaction coordinator. It is looked up by the kind of a request, the state of the
transactional id, and a claim; an entry is the answer, or the transition to the next state.

The table is Apache Kafka's behaviour. The functions of the requests (`lifecycle.py`) read `TABLE`, and nothing else
decides about a request that names an existing producer. A claim is how the producer id and epoch of a request compare
with those of its transactional id.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, NO_PRODUCER_ID
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionState,
)
from moldau.protocol.errors import ErrorCode


class RequestKind(Enum):
    """The kinds of requests. The numbers in the names are versions of the transaction protocol."""

    INIT = auto()
    ADD = auto()
    VERIFY = auto()
    COMMIT_1 = auto()
    ABORT_1 = auto()
    COMMIT_2 = auto()
    ABORT_2 = auto()


class ProducerClaim(Enum):
    """The relation of a request's producer id and epoch to those of the transactional id."""

    UNNAMED = auto()
    """The request names no producer, because the producer starts."""
    CURRENT = auto()
    PREVIOUS = auto()
    """The producer epoch with which the last transaction of protocol 2 ended.

    In an InitProducerId it is the epoch that the coordinator remembers as `last_epoch`.
    """
    REPLACED = auto()
    """The previous producer id with its last epoch, while the current producer id still has the epoch 0."""
    OLDER = auto()
    """A lower epoch than the current one, other than `PREVIOUS`."""
    NEWER = auto()
    """An epoch that no producer has been given."""
    FOREIGN = auto()
    """The request names a producer id that is not that of the transactional id."""


class PendingWrite(Enum):
    """The state of a transactional id in the table while a record of the id is written and not committed."""

    PENDING = auto()


class TransactionMove(Enum):
    CREATE = auto()
    """Create a transactional id, with a new producer id."""
    START = auto()
    """Give a producer that starts the next epoch, or a new producer id if the epochs are used up."""
    BUMP = auto()
    """Give a producer that continues after an error (KIP-360) the next epoch, as START does."""
    REPEAT = auto()
    """Repeat the answer to an earlier InitProducerId, because the client did not receive it. The producer keeps its
    epoch."""
    FENCE = auto()
    """Abort the transaction with a higher epoch. The client gets CONCURRENT_TRANSACTIONS, and repeats its request."""
    ADD = auto()
    """Add to the transaction the partitions that it does not have yet."""
    CHECK = auto()
    """Report for each partition whether it is part of the transaction."""
    COMMIT = auto()
    ABORT = auto()
    ABORT_NOTHING = auto()
    """Abort a transaction without partitions. A client of protocol 2 may ask for it, because it does not know whether a
    partition was added."""
    CONFIRM = auto()
    """Repeat the answer to an EndTxn: the producer id and epoch with which the producer continues."""


StateAndClaim: TypeAlias = TransactionState | PendingWrite
Decision: TypeAlias = ErrorCode | TransactionMove

PENDING = PendingWrite.PENDING
UNNAMED, CURRENT, PREVIOUS, REPLACED, OLDER, NEWER, FOREIGN = ProducerClaim
CREATE, START, BUMP, REPEAT, FENCE, ADD, CHECK, COMMIT, ABORT, ABORT_NOTHING, CONFIRM = TransactionMove

DONE: Final = ErrorCode.NONE
WAIT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
STALE: Final = ErrorCode.PRODUCER_FENCED
NO_ID: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
WRONG: Final = ErrorCode.INVALID_TXN_STATE

NEXT_STATE: Final[Mapping[TransactionMove, TransactionState | None]] = {
    CREATE: EMPTY,
    START: EMPTY,
    BUMP: EMPTY,
    REPEAT: EMPTY,
    FENCE: PREPARE_ABORT,
    ADD: ONGOING,
    CHECK: None,
    COMMIT: PREPARE_COMMIT,
    ABORT: PREPARE_ABORT,
    ABORT_NOTHING: PREPARE_ABORT,
    CONFIRM: None,
}
"""The state after a move; None if the move writes no record."""

INIT_CLAIMS: Final = (UNNAMED, CURRENT, PREVIOUS, OLDER, NEWER, FOREIGN)
CLAIMS: Final = (CURRENT, PREVIOUS, REPLACED, OLDER, NEWER, FOREIGN)
"""The columns of the tables of decisions: `INIT_CLAIMS` for `INIT_ROWS`, `CLAIMS` for all others."""

Rows: TypeAlias = Mapping[StateAndClaim, tuple[Decision, ...]]

INIT_ROWS: Final[Rows] = {
    #                UNNAMED  CURRENT  PREVIOUS  OLDER    NEWER    FOREIGN
    DEAD:            (CREATE, CREATE,  CREATE,   CREATE,  CREATE,  CREATE),
    EMPTY:           (START,  BUMP,    REPEAT,   STALE,   STALE,   STALE),
    ONGOING:         (FENCE,  FENCE,   FENCE,    FENCE,   FENCE,   STALE),
    PREPARE_COMMIT:  (WAIT,   WAIT,    WAIT,     WAIT,    WAIT,    WAIT),
    PREPARE_ABORT:   (WAIT,   WAIT,    WAIT,     WAIT,    WAIT,    WAIT),
    COMPLETE_COMMIT: (START,  BUMP,    REPEAT,   STALE,   STALE,   STALE),
    COMPLETE_ABORT:  (START,  BUMP,    REPEAT,   STALE,   STALE,   STALE),
    PENDING:         (WAIT,   WAIT,    WAIT,     WAIT,    WAIT,    WAIT),
}  # fmt: skip
"""The decisions about an InitProducerId. An open transaction is aborted for any epoch of its producer id, as in Apache
Kafka: the client has to repeat the request, and is then refused if its epoch is old."""

ADD_ROWS: Final[Rows] = {
    #                CURRENT  PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,  NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    ONGOING:         (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    PREPARE_ABORT:   (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    COMPLETE_COMMIT: (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (ADD,    STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PENDING:         (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
}  # fmt: skip

VERIFY_ROWS: Final[Rows] = {
    #                CURRENT  PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,  NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (CHECK,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    ONGOING:         (CHECK,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_ABORT:   (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_COMMIT: (CHECK,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (CHECK,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
}  # fmt: skip
"""The decisions about a VerifyPartitions. The table has no row for PENDING, because a verification reads the committed
state; the log of the partition checks again when the batch is appended."""

COMMIT_1_ROWS: Final[Rows] = {
    #                CURRENT  PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,  NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (WRONG,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    ONGOING:         (COMMIT, STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_ABORT:   (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_COMMIT: (DONE,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (WRONG,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PENDING:         (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
}  # fmt: skip

ABORT_1_ROWS: Final[Rows] = {
    #                CURRENT  PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,  NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (WRONG,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    ONGOING:         (ABORT,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PREPARE_ABORT:   (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_COMMIT: (WRONG,  STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (DONE,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
    PENDING:         (WAIT,   STALE,    NO_ID,    STALE,   STALE,   NO_ID),
}  # fmt: skip

COMMIT_2_ROWS: Final[Rows] = {
    #                CURRENT  PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,  NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (WRONG,  STALE,    STALE,    STALE,   STALE,   NO_ID),
    ONGOING:         (COMMIT, STALE,    STALE,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    PREPARE_ABORT:   (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    COMPLETE_COMMIT: (WRONG,  CONFIRM,  CONFIRM,  STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (WRONG,  WRONG,    WRONG,    STALE,   STALE,   NO_ID),
    PENDING:         (WAIT,   WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
}  # fmt: skip

ABORT_2_ROWS: Final[Rows] = {
    #                CURRENT         PREVIOUS  REPLACED  OLDER    NEWER    FOREIGN
    DEAD:            (NO_ID,         NO_ID,    NO_ID,    NO_ID,   NO_ID,   NO_ID),
    EMPTY:           (ABORT_NOTHING, STALE,    STALE,    STALE,   STALE,   NO_ID),
    ONGOING:         (ABORT,         STALE,    STALE,    STALE,   STALE,   NO_ID),
    PREPARE_COMMIT:  (WAIT,          WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    PREPARE_ABORT:   (WAIT,          WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
    COMPLETE_COMMIT: (ABORT_NOTHING, WRONG,    WRONG,    STALE,   STALE,   NO_ID),
    COMPLETE_ABORT:  (ABORT_NOTHING, CONFIRM,  CONFIRM,  STALE,   STALE,   NO_ID),
    PENDING:         (WAIT,          WAIT,     WAIT,     WAIT,    WAIT,    WAIT),
}  # fmt: skip
"""The decisions about an EndTxn that aborts, in protocol 2. In that protocol the epoch distinguishes a repeated EndTxn
(PREVIOUS, REPLACED) from the EndTxn of the next transaction (CURRENT). So a request that was delayed cannot end a
transaction that its client did not mean (KAFKA-17754)."""


def decision_table(
    claims: tuple[ProducerClaim, ...], rows: Rows
) -> Mapping[StateAndClaim, Mapping[ProducerClaim, Decision]]:
    return {standing: dict(zip(claims, row, strict=True)) for standing, row in rows.items()}


TABLE: Final[Mapping[RequestKind, Mapping[StateAndClaim, Mapping[ProducerClaim, Decision]]]] = {
    RequestKind.INIT: decision_table(INIT_CLAIMS, INIT_ROWS),
    RequestKind.ADD: decision_table(CLAIMS, ADD_ROWS),
    RequestKind.VERIFY: decision_table(CLAIMS, VERIFY_ROWS),
    RequestKind.COMMIT_1: decision_table(CLAIMS, COMMIT_1_ROWS),
    RequestKind.ABORT_1: decision_table(CLAIMS, ABORT_1_ROWS),
    RequestKind.COMMIT_2: decision_table(CLAIMS, COMMIT_2_ROWS),
    RequestKind.ABORT_2: decision_table(CLAIMS, ABORT_2_ROWS),
}


def claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ProducerClaim:
    """The claim of a request that adds partitions to a transaction, verifies them, or ends the transaction."""
    if transaction is None:
        return FOREIGN
    if producer_id == transaction.producer_id:
        # DIVERGES: Apache Kafka takes the epoch just below the current one for a repeated EndTxn. After a transaction
        # of protocol 1, whose end does not increase the epoch, it thus returns the current epoch to the fenced
        # producer.
        if transaction.client_version >= EPOCH_BUMP_VERSION and producer_epoch + 1 == transaction.producer_epoch:
            return PREVIOUS
        return epoch_claim(transaction, producer_epoch)
    is_replaced = producer_id == transaction.previous_producer_id and transaction.producer_epoch == 0
    return REPLACED if is_replaced and producer_epoch == LAST_EPOCH else FOREIGN


def init_claim_of(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ProducerClaim:
    """The claim of an InitProducerId: how its producer id and epoch compare with those of the transactional id."""
    if producer_id == NO_PRODUCER_ID:
        return UNNAMED
    if transaction is None:
        return FOREIGN
    is_replaced = producer_id == transaction.previous_producer_id and producer_epoch >= LAST_EPOCH
    if producer_id != transaction.producer_id and not is_replaced:
        return FOREIGN
    if producer_epoch == transaction.last_epoch:
        return PREVIOUS
    return epoch_claim(transaction, producer_epoch)


def epoch_claim(transaction: Transaction, producer_epoch: int) -> ProducerClaim:
    if producer_epoch == transaction.producer_epoch:
        return CURRENT
    return OLDER if producer_epoch < transaction.producer_epoch else NEWER
