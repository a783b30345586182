"""AddPartitionsToTxn (API key 24, versions 0-5; KIP-98, KIP-890): adds partitions to a transaction, or verifies them.

2: PRODUCER_FENCED · 4: brokers send it, with several transactions: the leader of a partition asks before the first
records of a transaction are appended (KIP-890) · 5: TRANSACTION_ABORTABLE (KIP-890), which version 4 gets as well.
Versions below 4 are sent by producers of the older protocol, with one transaction.

DIVERGES: Apache Kafka never answers a request without transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from moldau.broker.apis.api import FENCED, Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.needs import Answer, on_cluster, on_topic, on_transactional_id
from moldau.broker.apis.parts import ListPath, PartRules
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Pending, Reply
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import NEW_PROTOCOL, OLD_PROTOCOL, AddPartitions, VerifyPartitions
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
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation

BATCH_VERSION: Final = 4
"""The first version in which a request has several transactions, and comes from a broker."""

TopicPartition = tuple[str, int]
Errors = dict[TopicPartition, ErrorCode]
Outcome = ErrorCode | Errors
"""One error for all partitions of a transaction, or an error for each."""


def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Pending[AddPartitionsToTxnResponse]:
    transactions = transactions_of(request, context.version)
    answers: list[Any] = [add_partitions(services, context.version, each) for each in transactions]
    return join_answers(answers, lambda found: response_of(zip(transactions, found, strict=True), context.version))


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """The transactions of a request. Versions 0 to 3 have one."""
    if version >= BATCH_VERSION:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def add_partitions(services: Services, version: int, transaction: AddPartitionsToTxnTransaction) -> Reply[Outcome]:
    """Ask the transaction coordinator to add a transaction's partitions. If one of them does not exist, or a producer
    names one of an internal topic, none is added."""
    partitions = partitions_of(transaction.topics)
    topics = services.cluster.image.topics
    errors: Errors = {}
    for name, index in partitions:
        if version < BATCH_VERSION and name in INTERNAL_TOPICS:
            errors[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topics.partition(name, index) is None:
            errors[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        return {**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **errors}
    if not transaction.transactional_id:
        return ErrorCode.INVALID_REQUEST
    event = partial(event_of, transaction, tuple(partitions), version)
    return submit_event(services.transactions.runner_of(transaction.transactional_id), version, event, ErrorCode)


def event_of(
    transaction: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...], version: int, waiter: Waiter
) -> AddPartitions | VerifyPartitions:
    producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        return VerifyPartitions(waiter, *producer, partitions)
    return AddPartitions(waiter, *producer, partitions, OLD_PROTOCOL if version < BATCH_VERSION else NEW_PROTOCOL)


def response_of(
    found: Iterable[tuple[AddPartitionsToTxnTransaction, Outcome]], version: int
) -> AddPartitionsToTxnResponse:
    """Make the response in the form of the request's version."""
    response = AddPartitionsToTxnResponse()
    for transaction, answer in found:
        if isinstance(answer, ErrorCode) and transaction.verify_only:
            answer = dict.fromkeys(partitions_of(transaction.topics), answer)
        topics = same_results(transaction.topics, answer) if isinstance(answer, ErrorCode) else results_of(answer)
        if version < BATCH_VERSION:
            response.results_by_topic_v3_and_below = topics
        else:
            result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics)
            response.results_by_transaction.append(result)
    return response


def same_results(topics: Iterable[AddPartitionsToTxnTopic], error: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    """Make the results of an error of all partitions. They repeat what the request repeats, as in Apache Kafka."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=[partition_result(index, error) for index in topic.partitions]
        )
        for topic in topics
    ]


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def results_of(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), error in errors.items():
        result = by_topic.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        result.results_by_partition.append(partition_result(index, error))
    return list(by_topic.values())


def partition_result(index: int, error: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: CLUSTER_ACTION in versions for brokers (4 and later), otherwise WRITE on the transactional id and on
    each topic. If one topic is refused, no partition is added."""
    assert isinstance(request, AddPartitionsToTxnRequest)
    access = context.access
    if context.version >= BATCH_VERSION:
        if on_cluster(AclOperation.CLUSTER_ACTION).is_met(access):
            return answer(context, request)
        return refused(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    partitions = partitions_of(request.v3_and_below_topics)
    if not on_transactional_id(AclOperation.WRITE, request.v3_and_below_transactional_id).is_met(access):
        results = same_results(request.v3_and_below_topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    denied = {
        name
        for name in dict.fromkeys(name for name, _ in partitions)
        if name in INTERNAL_TOPICS or not on_topic(AclOperation.WRITE, name).is_met(access)
    }
    if not denied:
        return answer(context, request)
    topics = services.cluster.image.topics

    def error_of(name: str, index: int) -> ErrorCode:
        if name in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    errors = {each: error_of(*each) for each in partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results_of(errors))


API: Final = Api(
    AddPartitionsToTxnRequest,
    broker=handle,
    needs=acl_rule,
    lists=[
        PartRules(
            (
                ListPath("transactions.topics.partitions", "results_by_transaction.topic_results.results_by_partition"),
                ListPath("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
            ),
            size=64,
        )
    ],
    errors_before={2: FENCED},
)
