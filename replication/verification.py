"""Decides which transactional batches a leader verifies with the transaction coordinator before it appends them
(KIP-890).

Each transaction is verified once in a partition, at its first batch. After that the transaction is open in the log
until its marker, so later batches need no verification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT, parse_header
from moldau.storage.producers.verification import VerificationGuard

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

EPOCH_BUMP_PRODUCE_VERSION: Final = 12
"""The first version of Produce whose clients use transaction.version 2. The leader then adds the partition to the
client's transaction, even if verification is off.
"""


def guard_for_client_batch(
    partition: Partition, records: BytesLike, now_ms: int, produce_version: int
) -> VerificationGuard | None:
    """Return the verification guard for a client's batch that would open a transaction; None if the batch needs no
    verification.

    No verification is needed if the transaction is open already, the batch repeats an appended one or is not
    transactional, or verification is off for the client. The same holds if the append will be refused, because the
    replica does not lead, the batch is malformed, or its producer epoch is fenced.
    """
    supports_epoch_bump = produce_version >= EPOCH_BUMP_PRODUCE_VERSION
    if partition.leadership is None or not (partition.verifies_transactions or supports_epoch_bump):
        return None
    try:
        header = parse_header(records)
    except MalformedMessage:
        return None
    if (
        header.producer_id == NO_PRODUCER_ID
        or header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT
    ):
        return None
    producers = partition.log.producers
    if not producers.must_be_verified(header):
        return None
    return producers.verifications.begin_verification(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        partition.leader_epoch,
        now_ms,
        supports_epoch_bump=supports_epoch_bump,
    )


def guard_for_coordinator_batch(
    partition: Partition, producer_id: int, producer_epoch: int, now_ms: int, *, supports_epoch_bump: bool
) -> VerificationGuard | None:
    """Return the verification guard for offsets that a coordinator of this broker writes in a producer's transaction;
    None if no verification is needed, as in `guard_for_client_batch`. Such a batch has no sequence number.
    """
    if partition.leadership is None or not (partition.verifies_transactions or supports_epoch_bump):
        return None
    producers = partition.log.producers
    entry = producers.entries.get(producer_id)
    if entry is not None and producer_epoch < entry.producer_epoch:
        return None
    if producers.has_open_transaction(producer_id, producer_epoch):
        return None
    return producers.verifications.begin_verification(
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        partition.leader_epoch,
        now_ms,
        supports_epoch_bump=supports_epoch_bump,
    )
