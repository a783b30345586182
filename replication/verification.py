"""The choice of the transactional batches that a leader verifies with the transaction coordinator before the append
(KIP-890).

The leader verifies once for each transaction and partition. From its first batch to its marker the transaction is open
in the log, and further batches need no verification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT, parse_header
from moldau.storage.producers.verification import VerificationGuard

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

EPOCH_BUMP_PRODUCE_VERSION: Final = 12
"""From this version of Produce on, a client speaks the protocol of transaction.version 2: the leader adds the partition
to the client's transaction, even if verification is off."""


def batch_verification(
    partition: Partition, records: BytesLike, now_ms: int, produce_version: int
) -> VerificationGuard | None:
    """The verification guard for a client's batch that would open a transaction; None if the batch needs no
    verification.

    None, if its transaction is open in this log, if it repeats a batch that was appended, if it is not transactional,
    or if verification is off for this client. None also if the append will refuse the batch, because the replica does
    not lead, the batch is malformed, or its producer epoch is fenced.
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
    return producers.verifications.begin(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        partition.leader_epoch,
        now_ms,
        supports_epoch_bump=supports_epoch_bump,
    )


def coordinator_verification(
    partition: Partition, producer_id: int, producer_epoch: int, now_ms: int, *, supports_epoch_bump: bool
) -> VerificationGuard | None:
    """The verification guard for a batch of offsets that a coordinator of this broker writes as part of a producer's
    transaction; None if the batch needs no verification, as in `batch_verification`.

    Such a batch has no sequence number.
    """
    if partition.leadership is None or not (partition.verifies_transactions or supports_epoch_bump):
        return None
    producers = partition.log.producers
    entry = producers.entries.get(producer_id)
    if entry is not None and producer_epoch < entry.producer_epoch:
        return None
    if producers.has_open_transaction(producer_id, producer_epoch):
        return None
    return producers.verifications.begin(
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        partition.leader_epoch,
        now_ms,
        supports_epoch_bump=supports_epoch_bump,
    )
