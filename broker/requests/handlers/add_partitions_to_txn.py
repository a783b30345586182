"""AddPartitionsToTxn (API key 24, versions 0-5; KIP-98, KIP-890): adds partitions to a transaction, or verifies them.

Producers of the older protocol send versions 0 to 3, with one transaction. From version 4 on brokers send them, with
several: KIP-890 has the leader of a partition ask before the first records of a transaction are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import AddPartitions, VerifyPartitions
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

BATCH_VERSION: Final = 4
"""From this version on a request has several transactions, and comes from a broker."""
ABORTABLE_VERSION: Final = 5
"""From this version on TRANSACTION_ABORTABLE is known."""
OLD_PROTOCOL: Final = 0
NEW_PROTOCOL: Final = 2

TopicPartition = tuple[str, int]


class AddPartitionsToTxnServices(Protocol):
    @property
    def transactions(self) -> TransactionCoordinator: ...

    @property
    def cluster(self) -> ClusterView: ...


class Results:
    """The token of one transaction of the request: the coordinator gives one error for all its partitions, or one for
    each.
    """

    def __init__(self, batch: Batch, transactional_id: str, partitions: list[TopicPartition]) -> None:
        self._batch = batch
        self._transactional_id = transactional_id
        self._partitions = partitions

    def complete(self, response: object) -> None:
        assert isinstance(response, (ErrorCode, Mapping))
        errors = dict.fromkeys(self._partitions, response) if isinstance(response, ErrorCode) else response
        self._batch.answered(self._transactional_id, errors)


class Batch:
    """The response, once all transactions of the request are answered."""

    def __init__(self, version: int, count: int) -> None:
        self.reply: Pending[AddPartitionsToTxnResponse] = Pending(waits_for=COORDINATOR)
        self._version = version
        self._unanswered = count
        self._response = AddPartitionsToTxnResponse()
        if not count:
            self.reply.complete(self._response)

    def answered(self, transactional_id: str, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        if self._version < ABORTABLE_VERSION:
            errors = {
                partition: ErrorCode.INVALID_TXN_STATE if error is ErrorCode.TRANSACTION_ABORTABLE else error
                for partition, error in errors.items()
            }
        if self._version < BATCH_VERSION:
            if self._version < FENCED_VERSION:
                errors = {partition: known_before_fenced(error) for partition, error in errors.items()}
            self._response.results_by_topic_v3_and_below = results_of(errors)
        else:
            result = AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results_of(errors))
            self._response.results_by_transaction.append(result)
        self._unanswered -= 1
        if not self._unanswered:
            self.reply.complete(self._response)


FENCED_VERSION: Final = 2
"""From this version on PRODUCER_FENCED is known."""


def known_before_fenced(error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def handle(
    services: AddPartitionsToTxnServices, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Pending[AddPartitionsToTxnResponse]:
    transactions = request.transactions
    if context.version < BATCH_VERSION:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    batch = Batch(context.version, len(transactions))
    for transaction in transactions:
        ask(services, context, transaction, batch)
    return batch.reply


def ask(
    services: AddPartitionsToTxnServices,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    batch: Batch,
) -> None:
    """Ask the coordinator to add the partitions of one transaction. Where one of them does not exist none is added."""
    partitions = partitions_of(transaction.topics)
    transactional_id = transaction.transactional_id
    results = Results(batch, transactional_id, partitions)
    if not transactional_id:
        results.complete(ErrorCode.INVALID_REQUEST)
        return
    topics = services.cluster.image.topics
    missing = [each for each in partitions if topics.partition(*each) is None]
    if missing:
        errors = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        errors.update(dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        results.complete(errors)
        return
    runner = services.transactions.runner_of(transactional_id)
    if isinstance(runner, ErrorCode):
        results.complete(runner)
        return
    waiter = Waiter(results, context.version)
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        runner.submit(VerifyPartitions(waiter, transactional_id, producer_id, producer_epoch, tuple(partitions)))
        return
    protocol = OLD_PROTOCOL if context.version < BATCH_VERSION else NEW_PROTOCOL
    runner.submit(AddPartitions(waiter, transactional_id, producer_id, producer_epoch, tuple(partitions), protocol))


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def results_of(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in errors.items():
        result = by_topic.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return list(by_topic.values())
