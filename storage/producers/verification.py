"""The verification of transactions before they open in a log (KIP-890).

A transactional batch that arrives late, after the marker of its transaction, would open a transaction that no
coordinator ends: the last stable offset would never pass its first offset. Therefore the leader asks the transaction
coordinator before the first batch of a transaction. It appends the batch only with the guard that it noted when it
began to ask:

    begin ──▶ noted ──the coordinator confirms──▶ the batch is appended with the guard: the transaction opens
               │
               ├── a transactional batch of the producer is appended: the guard is used up
               ├── a marker of the producer is appended: the transaction that the coordinator confirmed has ended
               ├── the replica does not lead any more, or leads in a new term
               └── producer.id.expiration.ms is over

A guard that is not noted any more opens no transaction: the append is refused with INVALID_TXN_STATE.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.record_batch import CONTROL_BIT, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader

NO_TERM: Final = -1


class VerificationGuard:
    """The token of a verification that is under way: Apache Kafka's VerificationStateEntry and VerificationGuard in
    one. It is compared by identity."""

    __slots__ = ("leader_epoch", "lowest_sequence", "noted_ms", "producer_epoch", "supports_epoch_bump")

    def __init__(
        self, producer_epoch: int, lowest_sequence: int, leader_epoch: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        """The lowest first sequence among the waiting batches. A batch with a higher sequence must not go first."""
        self.leader_epoch = leader_epoch
        """The leader epoch of the replica when the verification began."""
        self.noted_ms = now_ms
        self.supports_epoch_bump = supports_epoch_bump
        """Whether the client uses the protocol of transaction.version 2: its epoch is new in each transaction, and
        sequences begin at 0."""

    def note_another_batch(self, producer_epoch: int, sequence: int) -> None:
        """Note that another batch of the producer waits for this verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


NOT_REQUIRED: Final = VerificationGuard(NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TERM, 0, supports_epoch_bump=False)
"""The guard for a batch that may open a transaction without a verification."""


class Verifications:
    """The guards of the verifications that are under way in one log, at most one for each producer id."""

    __slots__ = ("guards",)

    def __init__(self) -> None:
        self.guards: dict[int, VerificationGuard] = {}

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        leader_epoch: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard:
        """Begin a verification, and return the guard for a batch whose first sequence is `sequence`. Batches of one
        producer that wait at the same time share a guard."""
        guard = self.guards.get(producer_id)
        if guard is None:
            guard = self.guards[producer_id] = VerificationGuard(
                producer_epoch, sequence, leader_epoch, now_ms, supports_epoch_bump=supports_epoch_bump
            )
        else:
            guard.note_another_batch(producer_epoch, sequence)
        return guard

    def drop_guard_after_append(self, header: BatchHeader) -> None:
        """Drop the guard of a producer whose transactional batch or marker was appended.

        Under transaction.version 2 a marker with the epoch of the guard keeps it: that marker ended the previous
        transaction, while the marker of the verified one has the next epoch.
        """
        guard = self.guards.get(header.producer_id)
        if guard is None:
            return
        is_marker = header.attributes & CONTROL_BIT != 0
        if not (is_marker and guard.supports_epoch_bump and header.producer_epoch == guard.producer_epoch):
            del self.guards[header.producer_id]

    def expire_guards(self, now_ms: int, expiration_ms: int) -> None:
        """Drop the guards that were noted at least `expiration_ms` ago."""
        for producer_id in [key for key, each in self.guards.items() if now_ms - each.noted_ms >= expiration_ms]:
            del self.guards[producer_id]

    def clear(self) -> None:
        """Drop all guards: the replica does not lead any more, or leads in a new term."""
        self.guards.clear()
