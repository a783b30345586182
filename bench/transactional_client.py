"""A producer of transaction protocol 2 in raw requests: a produce adds its partitions, each transaction has its epoch.

    Fetch            with offsets: the records that the transaction consumes
    Produce          a batch for each partition, in one request to each leader, all at once
    TxnOffsetCommit  with offsets: the committed offset of the group
    EndTxn           the reply brings the producer's next epoch

A broker that is still writing the markers of the previous transaction answers with CONCURRENT_TRANSACTIONS. The client
repeats the request after a millisecond, and that time is part of the latency.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from bench.client import Client, Unanswered, connect_with_retries
from bench.conversations import Conversation, Request
from bench.frames import ProducerIdentity, batch_of, request_frame
from bench.outcome import LoadFailed
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CRC_POSITION
from moldau.protocol.schema import spec_of

PRODUCE_VERSION: Final = 12
END_TXN_VERSION: Final = 5
TXN_OFFSET_COMMIT_VERSION: Final = 5
INIT_PRODUCER_ID_VERSION: Final = 5
FIND_COORDINATOR_VERSION: Final = 4
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
TIMEOUT_MS: Final = 60_000
RETRY_S: Final = 0.001
PATIENCE_S: Final = 60.0
RETRIABLE_ERRORS: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors after which a request is repeated. NOT_COORDINATOR is among them, because metadata name a coordinator before
the broker itself knows of its role.
"""
TRANSACTIONAL: Final = 1 << 4
"""The bit of transactional batches in the attributes of a batch."""

_PRODUCER_POSITION: Final = 43
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qh")
_UINT32 = struct.Struct(">I")

_Response = TypeVar("_Response")

Exchange = Generator[Sequence[Request] | float, list[memoryview], _Response]
"""A part of a conversation."""


class TransactionalBatch:
    """A transactional batch whose producer id and epoch can be set. Its sequences begin at 0, as at each new epoch."""

    def __init__(self, value_sizes: Sequence[int], now_ms: int) -> None:
        batch = bytearray(batch_of(list(value_sizes), now_ms, ProducerIdentity(0, 0)))
        (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)
        _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes | TRANSACTIONAL)
        self._batch = batch

    def of(self, producer: ProducerIdentity) -> bytes:
        _PRODUCER.pack_into(self._batch, _PRODUCER_POSITION, producer.id, producer.epoch)
        _UINT32.pack_into(self._batch, CRC_POSITION, crc32c(memoryview(self._batch)[ATTRIBUTES_POSITION:], 0))
        return bytes(self._batch)


class ConsumedSource(NamedTuple):
    """The records that a transaction consumes: the fetch, the leader's port, and the group whose offsets it commits."""

    port: int
    fetch: bytes
    group: str
    coordinator: int
    """The port of the group's coordinator."""


class TransactionWork(NamedTuple):
    """The work of each transaction: `batches` by partition. The leaders of the partitions have the ports `leaders`."""

    topic: str
    leaders: Sequence[int]
    batches: Sequence[TransactionalBatch]
    source: ConsumedSource | None = None


class TransactionalProducer:
    """A producer with a transactional id, and the durations of its commits and transactions."""

    def __init__(self, client: Client, transactional_id: str, work: TransactionWork) -> None:
        self.commits_ns = array("Q")
        """The time (ns) from each EndTxn to its reply."""
        self.transactions_ns = array("Q")
        """The time (ns) from the first request of each transaction to the reply to its EndTxn."""
        self.refusals = 0
        """The number of answers with CONCURRENT_TRANSACTIONS."""
        self._id = transactional_id
        self._work = work
        self._offset = 0
        self._coordinator, self._producer = init_producer(client, transactional_id)

    def run_transactions(self, count: int, interval_s: float = 0.0, delay_s: float = 0.0) -> Conversation:
        """Commit `count` transactions, one after the other. Each begins `interval_s` after the one before, the first
        `delay_s` from now. A transaction whose time has passed begins at once, and its latency counts from that time.
        """
        source = self._work.source
        due = time.perf_counter() + delay_s
        for _ in range(count):
            if (early_s := due - time.perf_counter()) > 0:
                yield early_s
            due += interval_s
            began = time.perf_counter_ns()
            if source is not None:
                yield [Request(source.port, source.fetch)]
            yield from self.produce(self._work.batches)
            if source is not None:
                yield from self._commit_offsets(source)
            ending = time.perf_counter_ns()
            yield from self.end_transaction(is_commit=True)
            now = time.perf_counter_ns()
            self.commits_ns.append(now - ending)
            self.transactions_ns.append(now - began)

    def produce(self, batches: Sequence[TransactionalBatch]) -> Exchange[None]:
        """Send one batch to each partition, in one request to each leader."""
        requests = {port: self._produce_request(port, batches) for port in self._work.leaders[: len(batches)]}
        frames = {port: request_frame(request, PRODUCE_VERSION) for port, request in requests.items()}
        while frames:
            replies = yield [Request(port, frame) for port, frame in frames.items()]
            for port, reply in zip(list(frames), replies, strict=True):
                answer = decode_reply(reply, requests[port], ProduceResponse, PRODUCE_VERSION)
                if not self._must_retry(
                    {each.error_code for topic in answer.responses for each in topic.partition_responses}
                ):
                    del frames[port]
            if frames:
                yield RETRY_S

    def _produce_request(self, port: int, batches: Sequence[TransactionalBatch]) -> ProduceRequest:
        data = [
            PartitionProduceData(index=index, records=batch.of(self._producer))
            for index, batch in enumerate(batches)
            if self._work.leaders[index] == port
        ]
        topic_data = [TopicProduceData(name=self._work.topic, partition_data=data)]
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=topic_data)

    def _commit_offsets(self, source: ConsumedSource) -> Exchange[None]:
        self._offset += 1
        count = len(self._work.batches)
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=self._offset)
            for each in range(count)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=source.group,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._work.topic, partitions=partitions)],
        )
        asked = [Request(source.coordinator, request_frame(request, TXN_OFFSET_COMMIT_VERSION))]
        while True:
            (reply,) = yield asked
            answer = decode_reply(reply, request, TxnOffsetCommitResponse, TXN_OFFSET_COMMIT_VERSION)
            if not self._must_retry({each.error_code for topic in answer.topics for each in topic.partitions}):
                return
            yield RETRY_S

    def end_transaction(self, *, is_commit: bool) -> Exchange[None]:
        """Commit or abort the transaction. The producer continues with the epoch in the reply."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            committed=is_commit,
        )
        asked = [Request(self._coordinator, request_frame(request, END_TXN_VERSION))]
        while True:
            (reply,) = yield asked
            answer = decode_reply(reply, request, EndTxnResponse, END_TXN_VERSION)
            if not self._must_retry({answer.error_code}):
                self._producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                return
            yield RETRY_S

    def _must_retry(self, errors: set[int]) -> bool:
        """Whether a request must be repeated because of its errors. Raises `LoadFailed` for an error that is not
        retriable.
        """
        if errors == {ErrorCode.NONE}:
            return False
        if not errors <= RETRIABLE_ERRORS:
            raise LoadFailed(f"errors {sorted(errors)} in a reply")
        self.refusals += 1
        return True


def decode_reply(reply: memoryview, request: object, response: type[_Response], version: int) -> _Response:
    position = 9 if version in spec_of(type(request)).flexible else 8
    return decode(response, reply[position:], version)


def await_coordinator(client: Client, key: str, key_type: int) -> int:
    """Ask for a coordinator until it exists, and return its port. The first request creates the internal topic."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    return _ask_until(
        lambda: client.ask(request, FindCoordinatorResponse, FIND_COORDINATOR_VERSION).coordinators[0]
    ).port


def init_producer(client: Client, transactional_id: str) -> tuple[int, ProducerIdentity]:
    """Return the port of a transactional id's coordinator, with the producer id and epoch once the coordinator has
    loaded.
    """
    port = await_coordinator(client, transactional_id, TRANSACTION_KEY)
    coordinator = connect_with_retries(port)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    answer = _ask_until(lambda: coordinator.ask(request, InitProducerIdResponse, INIT_PRODUCER_ID_VERSION))
    coordinator.close()
    return port, ProducerIdentity(answer.producer_id, answer.producer_epoch)


class _Answer(Protocol):
    @property
    def error_code(self) -> int: ...


_Answered = TypeVar("_Answered", bound=_Answer)


def _ask_until(ask: Callable[[], _Answered]) -> _Answered:
    """Repeat a request until its response has no error."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        if answer.error_code == ErrorCode.NONE:
            return answer
        if time.monotonic() > deadline:
            raise Unanswered(f"error {answer.error_code} for {PATIENCE_S:.0f} s")
        time.sleep(0.01)
