"""A transactional producer of either protocol, one object of a client library.

    protocol 1   AddPartitionsToTxn v3, Produce v11, AddOffsetsToTxn v3, TxnOffsetCommit v3, EndTxn v4
    protocol 2   Produce v12, TxnOffsetCommit v5, EndTxn v5; the epoch moves with every transaction

Under protocol 1 nothing tells a late request of one transaction from a request of the next one. After a request whose
answer it did not get, such a producer therefore asks for a new epoch before its next transaction (KIP-360), as the Java
client does if it gave a batch up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from tests.support.cluster_clients import TRANSIENT
from tests.support.coordinators import GROUP, TRANSACTION
from tests.support.history import Key
from tests.support.node import Closed, produce_request
from tests.support.transactions.connections import Connections
from tests.support.transactions.ledger import Attempt, Ledger, Outcome

RETRIABLE: Final = TRANSIENT | {ErrorCode.CONCURRENT_TRANSACTIONS}
REFUSALS: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors that end a transaction, or a producer. Any other is a complaint."""
TIMESTAMP_MS: Final = 1_767_225_600_000
HELD_BACK: Final = 0.03
"""The probability that a request arrives late, on a connection that was given up."""
GIVES_UP_S: Final = 8.0


class Refused(Exception):
    """The cluster refused a request for good."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class GaveUp(Exception):
    """There was no definite answer in time."""


@dataclass(slots=True)
class Identity:
    """A transactional id, and what is known of its producers."""

    name: str
    protocol: int
    timeout_ms: int
    generation: int = 0
    """Raised when a producer has taken the transactional id over: those before it are zombies."""
    issued: dict[tuple[int, int], str] = field(default_factory=dict)
    """Each producer id and epoch, and the producer that was given it."""


def plain_record(name: str) -> Record:
    """A record whose value is its name."""
    return Record(value=name.encode(), timestamp=TIMESTAMP_MS)


class TransactionalProducer:
    def __init__(
        self,
        name: str,
        identity: Identity,
        connections: Connections,
        ledger: Ledger,
        record_of: Callable[[str], Record] = plain_record,
    ) -> None:
        self.name = name
        self.identity = identity
        self.committed_count = 0
        self._connections = connections
        self._random = connections.random
        self._ledger = ledger
        self._record_of = record_of
        self._id = (-1, -1)
        self._generation = 0
        self._sequences: dict[Key, int] = {}
        self._added: dict[object, None] = {}
        """Partitions and groups that are part of the transaction, under protocol 1."""
        self._has_written = False
        self._needs_epoch = False
        self._count = 0

    @property
    def is_zombie(self) -> bool:
        return self._generation < self.identity.generation

    # The producer id

    async def start(self) -> None:
        """Take the transactional id over. Raises `Refused`, `GaveUp`."""
        await self._init(-1, -1)
        self.identity.generation += 1
        self._generation = self.identity.generation

    async def go_on(self) -> None:
        """Ask for a new epoch after an error (KIP-360)."""
        was_zombie = self.is_zombie
        await self._init(*self._id)
        if was_zombie:
            self._complain(f"a zombie was given {self._id}")

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.identity.name,
            transaction_timeout_ms=self.identity.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        reply = await self._until_answered(self._coordinator, request, 5, lambda reply: reply.error_code, is_late=False)
        self._take_id(reply.producer_id, reply.producer_epoch)
        self._needs_epoch = False

    def _take_id(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != self._id:
            self._sequences.clear()
        self._id = producer_id, producer_epoch
        owner = self.identity.issued.setdefault(self._id, self.name)
        if owner != self.name:
            self._complain(f"producer id {self._id} was given to {owner} already")

    # One transaction

    def begin(self) -> Attempt:
        self._added.clear()
        self._has_written = False
        self._count += 1
        return self._ledger.begin(f"{self.name}.{self._count}", self.name)

    async def produce(self, attempt: Attempt, key: Key, values: list[str]) -> None:
        """One batch, acknowledged when this returns. Raises `Refused`, `GaveUp`."""
        was_zombie = self.is_zombie
        sends = [self._ledger.wrote(attempt, key, value) for value in values]
        if self.identity.protocol == 1:
            await self._add_partition(key)
        sequence = self._sequences.get(key, 0)
        data = build_batch(
            [self._record_of(value) for value in values],
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(key[0], data, partition=key[1])
        request.transactional_id = self.identity.name
        self._has_written = True
        reply = await self._until_answered(
            lambda: self._connections.leader(key),
            request,
            11 if self.identity.protocol == 1 else 12,
            lambda reply: reply.responses[0].partition_responses[0].error_code,
        )
        answer = reply.responses[0].partition_responses[0]
        if was_zombie:
            self._complain(f"a zombie wrote {values[0]} at {answer.base_offset} of {key}")
        self._sequences[key] = sequence + len(values)
        for i, sent in enumerate(sends):
            sent.offset = answer.base_offset + i if answer.base_offset >= 0 else -1

    async def _add_partition(self, key: Key) -> None:
        if key in self._added:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.identity.name,
            v3_and_below_producer_id=self._id[0],
            v3_and_below_producer_epoch=self._id[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=key[0], partitions=[key[1]])],
        )
        self._has_written = True
        await self._until_answered(
            self._coordinator,
            request,
            3,
            lambda reply: reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        self._added[key] = None

    async def commit_offset(self, group: str, key: Key, offset: int) -> None:
        """Commit an offset as part of the transaction."""
        was_zombie = self.is_zombie
        producer_id, producer_epoch = self._id
        self._has_written = True
        if self.identity.protocol == 1:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.identity.name,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                group_id=group,
            )
            await self._until_answered(self._coordinator, add, 3, lambda reply: reply.error_code)
        partition = TxnOffsetCommitRequestPartition(partition_index=key[1], committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.identity.name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=key[0], partitions=[partition])],
        )
        await self._until_answered(
            lambda: self._connections.coordinator(GROUP, group),
            request,
            3 if self.identity.protocol == 1 else 5,
            lambda reply: reply.topics[0].partitions[0].error_code,
        )
        if was_zombie:
            self._complain(f"a zombie committed offset {offset} of {key}")

    async def end(self, attempt: Attempt, *, is_commit: bool) -> None:
        """End the transaction. Raises `Refused`, `GaveUp`; the outcome is noted in the attempt."""
        if self._has_written:
            await self._end(attempt, is_commit=is_commit)
        if is_commit:
            attempt.outcome = Outcome.COMMITTED
            self.committed_count += 1
        if self._needs_epoch and self.identity.protocol == 1:
            await self.go_on()

    async def _end(self, attempt: Attempt, *, is_commit: bool) -> None:
        was_zombie, is_uncertain = self.is_zombie, False
        request = EndTxnRequest(
            transactional_id=self.identity.name,
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            committed=is_commit,
        )
        version, ends_s = 4 if self.identity.protocol == 1 else 5, self._now_s() + GIVES_UP_S
        while self._now_s() < ends_s:
            try:
                coordinator = await self._coordinator()
                if is_commit:
                    attempt.outcome = Outcome.IN_DOUBT
                if self._random.random() < HELD_BACK:
                    self._connections.hold_back(coordinator, request, version)
                    is_uncertain = self._needs_epoch = True
                    continue
                reply = await self._connections.ask(coordinator, request, version)
            except Closed:
                is_uncertain = self._needs_epoch = True
                await self._connections.back_off()
                continue
            error = ErrorCode(reply.error_code)
            if error is ErrorCode.NONE:
                if was_zombie:
                    self._complain(f"a zombie ended {attempt.name}")
                if version >= 5:
                    self._take_id(reply.producer_id, reply.producer_epoch)
                return
            if error not in RETRIABLE:
                if is_commit and (error is ErrorCode.INVALID_TXN_STATE or not is_uncertain):
                    attempt.outcome = Outcome.ABORTED
                raise self._refused(error, request)
            is_uncertain = is_uncertain or error is not ErrorCode.CONCURRENT_TRANSACTIONS
            await self._connections.back_off()
        raise GaveUp

    # Asking

    async def _coordinator(self) -> int:
        return await self._connections.coordinator(TRANSACTION, self.identity.name)

    async def _until_answered(
        self,
        find: Callable[[], Awaitable[int]],
        request: object,
        version: int,
        error_of: Callable[[Any], int],
        *,
        is_late: bool = True,
    ) -> Any:
        """Repeat a request until its response has no error, and return that.

        `is_late`: a request may also be held back.
        """
        ends_s = self._now_s() + GIVES_UP_S
        while self._now_s() < ends_s:
            try:
                node_id = await find()
                if is_late and self._random.random() < HELD_BACK:
                    self._connections.hold_back(node_id, request, version)
                    self._needs_epoch = True
                    if self._random.random() < 0.5:
                        raise GaveUp
                    continue
                reply = await self._connections.ask(node_id, request, version)
            except Closed:
                self._needs_epoch = True
            else:
                error = ErrorCode(error_of(reply))
                if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return reply
                if error not in RETRIABLE:
                    raise self._refused(error, request)
            await self._connections.back_off()
        raise GaveUp

    def _refused(self, error: ErrorCode, request: object) -> Refused:
        if error not in REFUSALS:
            self._complain(f"{type(request).__name__} was refused with {error.name}")
        return Refused(error)

    def _complain(self, text: str) -> None:
        self._ledger.complaints.append(f"{self.name}: {text}")

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
