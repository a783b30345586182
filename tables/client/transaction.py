"""The transaction of one attempt of a task: the task adds partitions and produces records, and the driver ends the
transaction.

    task:   InitProducerId ──▶ AddPartitionsToTxn, Produce … ──▶ (transactional id, producer id, epoch) to the driver
    driver: EndTxn(commit) of each task, or EndTxn(abort)

A transaction belongs to its transactional id, producer id and epoch, and not to a connection, so the driver can end a
transaction that a task began.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from moldau.protocol.errors import ErrorCode, error_name
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.client.cluster import Cluster, check_error
from moldau.tables.client.connection import BrokerConnection
from moldau.tables.client.settings import Address
from moldau.tables.refusals import Refused

TRANSACTION_KEY_TYPE: Final = 1
"""The key type of FindCoordinator for a transactional id."""
ENDED_OTHERWISE: Final = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class ProducerIdentity(NamedTuple):
    """The identity of a producer, as the transaction coordinator knows it. A task sends it to the driver, which stores
    it in the log of transactions."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class TransactionOutcome(Enum):
    """The result of EndTxn."""

    DONE = "done"
    """The transaction ended as requested, by this request or an earlier one."""
    LOST = "lost"
    """The coordinator had ended the transaction the other way, because it timed out."""


def new_producer(cluster: Cluster, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
    """Request a producer id for an idempotent producer. It is transactional if a transactional id is given.
    `timeout_ms`: the timeout of its transactions. Raises `Refused`."""

    def attempt() -> ProducerIdentity:
        connection = (
            cluster.any_connection() if transactional_id is None else coordinator_connection(cluster, transactional_id)
        )
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        reply = connection.ask(request, InitProducerIdResponse, 4)
        check_error(reply.error_code, f"producer {transactional_id or ''}")
        return ProducerIdentity(transactional_id, reply.producer_id, reply.producer_epoch)

    return cluster.retry("producer id", attempt)


def add_partitions(cluster: Cluster, producer: ProducerIdentity, keys: Iterable[TopicPartition]) -> None:
    """Add partitions to the transaction of a producer. Raises `Refused`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    assert producer.transactional_id is not None
    transactional_id = producer.transactional_id
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )

    def attempt() -> None:
        reply = coordinator_connection(cluster, transactional_id).ask(request, AddPartitionsToTxnResponse, 3)
        for topic in reply.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                check_error(each.partition_error_code, f"{topic.name}-{each.partition_index}")

    cluster.retry("transaction", attempt)


def end_transaction(cluster: Cluster, producer: ProducerIdentity, *, is_commit: bool) -> TransactionOutcome:
    """Commit or abort the transaction of a producer. A repeated request with the same decision is not an error. Raises
    `Refused` if the coordinator does not know the transactional id any more, or does not answer."""
    assert producer.transactional_id is not None
    transactional_id = producer.transactional_id
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=is_commit,
    )

    def attempt() -> TransactionOutcome:
        reply = coordinator_connection(cluster, transactional_id).ask(request, EndTxnResponse, 3)
        if reply.error_code in ENDED_OTHERWISE:
            return TransactionOutcome.LOST
        check_error(reply.error_code, f"transaction {transactional_id}")
        return TransactionOutcome.DONE

    return cluster.retry("transaction", attempt)


def coordinator_connection(cluster: Cluster, transactional_id: str) -> BrokerConnection:
    """The connection to the transaction coordinator of a transactional id.

    Raises `TransientError`, `Refused` and `Disconnected`.
    """
    request = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION_KEY_TYPE)
    reply = cluster.any_connection().ask(request, FindCoordinatorResponse, 3)
    if reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        raise Refused(f"transaction {transactional_id}: {error_name(reply.error_code)}")
    check_error(reply.error_code, f"coordinator of {transactional_id}")
    return cluster.connection(Address(reply.host, reply.port))
