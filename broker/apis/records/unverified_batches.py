"""The first records of a transaction in a partition. They are appended after the transaction coordinator has verified
that the partition is part of the transaction.

KIP-890: a request that arrives late, after its transaction has ended, must not begin another transaction, which no
coordinator would end. The log makes a verification guard (`guard_for_client_batch`), the broker asks the coordinator,
and then appends the records with the guard. The log refuses them if a marker was appended meanwhile. The connection is
not read during this, so that a producer's batches stay in order. Later records of the same transaction need no
verification.
"""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.broker.coordinators.transaction_verifier import Answer, TransactionQuestion, TransactionVerifier
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, TRANSACTIONAL_BIT, parse_header
from moldau.replication.partition import Partition
from moldau.replication.verification import guard_for_client_batch
from moldau.storage.producers.verification import VerificationGuard

NONE: Final = ErrorCode.NONE
TRANSACTIONAL_POSITION: Final = ATTRIBUTES_POSITION + 1
"""The position in a batch of the byte with the transactional bit."""
NEW_PROTOCOL_VERSION: Final = 12
"""The first version in which a produce adds its partition to the transaction."""
RETRIABLE_VERIFICATION_ERRORS: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    # DIVERGES: Apache Kafka passes this one on, and the producer aborts its transaction. The coordinator answers it for
    # a partition beside one that it does not know yet, because its metadata is behind.
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
"""Errors of the transaction coordinator after which a producer should send the same batch again."""


class UnverifiedBatch:
    """A copy of a batch for one partition that must be verified with the transaction coordinator, and its answer."""

    __slots__ = ("answer", "guard", "partition", "producer_epoch", "producer_id", "records")

    def __init__(
        self, partition: Partition, records: BytesLike, guard: VerificationGuard | None, error: ErrorCode
    ) -> None:
        self.partition = partition
        self.records = bytearray(records)
        self.guard = guard
        """The verification guard of the log; None if the batch is refused already."""
        self.answer = PartitionProduceResponse(index=partition.index, error_code=error, base_offset=-1)
        self.producer_id = self.producer_epoch = -1
        if guard is not None:
            header = parse_header(self.records)
            self.producer_id, self.producer_epoch = header.producer_id, header.producer_epoch


def is_transactional(records: BytesLike) -> bool:
    return len(records) > TRANSACTIONAL_POSITION and bool(records[TRANSACTIONAL_POSITION] & TRANSACTIONAL_BIT)


def unverified_batch(
    request: ProduceRequest, partition: Partition, records: BytesLike, now_ms: int, version: int
) -> UnverifiedBatch | None:
    """Copy a batch that must be verified before its append, or that is refused because the request has no transactional
    id.

    Returns None if the batch may be appended at once, or if the log will refuse it."""
    if request.transactional_id is None:
        return UnverifiedBatch(partition, b"", None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    guard = guard_for_client_batch(partition, records, now_ms, version)
    return None if guard is None else UnverifiedBatch(partition, records, guard, NONE)


class Verification:
    """The verification of a request's batches with the transaction coordinator.

    The coordinator answers within the constructor if it is on this broker and its record is committed at once."""

    __slots__ = ("_answer", "_answered", "_asked")

    def __init__(
        self, asker: TransactionVerifier, request: ProduceRequest, version: int, batches: list[UnverifiedBatch]
    ) -> None:
        self._answer: Answer | None = None
        self._answered: asyncio.Future[None] | None = None
        """A future that is done when the coordinator answers; None if no task waits for that."""
        self._asked = batches_of_first_producer(batches)
        if not self._asked:
            self._answer = {}
            return
        first = self._asked[0]
        partitions = tuple(dict.fromkeys((each.partition.topic, each.partition.index) for each in self._asked))
        asker.ask(
            TransactionQuestion(
                request.transactional_id or "",
                first.producer_id,
                first.producer_epoch,
                partitions,
                version >= NEW_PROTOCOL_VERSION,
                self._give,
            )
        )

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    async def until_answered(self) -> None:
        if self._answer is None:
            self._answered = asyncio.get_running_loop().create_future()
            await self._answered

    def accepted(self) -> list[UnverifiedBatch]:
        """Return the batches that the coordinator has verified; the others get its errors. Call it after the answer."""
        answer = self._answer
        assert answer is not None, "the coordinator has answered"
        accepted = []
        for each in self._asked:
            error = answer[each.partition.topic, each.partition.index]
            if error is NONE:
                accepted.append(each)
            else:
                refuse(each.answer, error)
        return accepted

    def _give(self, answer: Answer) -> None:
        self._answer = answer
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)


def batches_of_first_producer(batches: list[UnverifiedBatch]) -> list[UnverifiedBatch]:
    """Return the batches of the first producer, which are verified. Batches of other producers are refused."""
    asked = [each for each in batches if each.guard is not None]
    others = [each for each in asked if each.producer_id != asked[0].producer_id]
    if not others:
        return asked
    for each in others:
        each.answer.error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return [each for each in asked if each.producer_id == asked[0].producer_id]


def refuse(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    """Put the coordinator's error into the answer of a partition, as an error that producers know."""
    if error is ErrorCode.PRODUCER_FENCED:
        answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error in RETRIABLE_VERIFICATION_ERRORS:
        answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        answer.error_message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        )
    else:
        answer.error_code = error
        if error is ErrorCode.INVALID_TXN_STATE:
            answer.error_message = "Partition was not added to the transaction"
