"""The states of a transactional id, and the transitions between them.

A transactional id belongs to one producer at a time: a producer id and an epoch. The producer that asks last
(InitProducerId) has the highest epoch, and fences all earlier ones. It runs one transaction after the other:

         partitions added
                ┌──┐
    ──▶ Empty ─▶ Ongoing ──EndTxn: commit───────────────────────▶ PrepareCommit ──markers──▶ CompleteCommit
          │        └───────EndTxn: abort, new producer, timeout─▶ PrepareAbort ───markers──▶ CompleteAbort
          └────────────────an abort without partitions─────────────────▲

From both complete states a transaction begins as from Empty: added partitions lead to Ongoing, an abort without
partitions to PrepareAbort, and InitProducerId to Empty.

* **Empty**: a producer owns the id and has not begun a transaction.
* **Ongoing**: the transaction has partitions.
* **PrepareCommit, PrepareAbort**: the outcome is decided. From the commit of this record on it does not change, and the
  leader of each partition is sent a marker.
* **CompleteCommit, CompleteAbort**: every partition has its marker.
* **Dead**: the transactional id does not exist: it was never used, or has expired. No record has this state.
* **PrepareEpochFence**: a state of Apache Kafka's memory while it fences a producer. No record has it, and no
  transaction here: a fence goes from Ongoing to PrepareAbort in one step.

A transition is a record. While that is not committed, and while markers are being written, every request that would
change the transaction is answered with CONCURRENT_TRANSACTIONS, and its client tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    """The states of a transactional id. The values are the status codes of records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


(EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE) = (
    TransactionState
)

NAMES: Final[Mapping[TransactionState, str]] = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
    DEAD: "Dead",
    PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""Kafka's names of the states in the protocol."""

FORMER_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset({DEAD, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset(),
}
"""The states from which a transaction may move into each."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The state of a prepared transaction after every partition got its marker."""
