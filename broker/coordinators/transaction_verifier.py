"""Asks the transaction coordinator, on this broker or another, whether partitions are part of a transaction, or adds
them.

The leader of a partition asks before it appends a producer's first records of a transaction (KIP-890), so that a late
Produce request does not begin a transaction that no coordinator will end. A producer of the older protocol has added
the partition to its transaction itself, and the coordinator verifies that. For a producer of the newer protocol the
leader's request adds the partition.

Requests to one broker are joined while another request to it is in progress.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from moldau.broker.coordinators.joined_questions import BatchedQuestions, error_without
from moldau.broker.coordinators.transactions import TransactionCoordinator
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import NEW_PROTOCOL, AddPartitions, VerifyPartitions
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

TopicPartition: TypeAlias = tuple[str, int]
Answer: TypeAlias = Mapping[TopicPartition, ErrorCode]

PURPOSE: Final = "transaction partitions"
FIRST_RETRY_MS: Final = 1
"""The pause in milliseconds before a question is repeated for the first time."""


class TransactionQuestion(NamedTuple):
    """Asks whether partitions are part of one producer's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    """Whether the coordinator adds the partitions that are missing. If not, the answer has an error for each of
    them.
    """
    answered: Callable[[Answer], None]
    """Called once with an error for each partition: NONE if the partition is part of the transaction."""

    def answer_with(self, error: ErrorCode) -> Answer:
        return dict.fromkeys(self.partitions, error)


class Coordinator(NamedTuple):
    """The broker that leads the partitions of some transaction coordinators, as the destination of a request."""

    broker_id: int


class AnswerToken:
    """Passes the reply of the transaction coordinator on this broker to the question."""

    def __init__(self, question: TransactionQuestion) -> None:
        self._question = question

    def complete(self, response: object) -> None:
        if isinstance(response, ErrorCode):
            response = self._question.answer_with(response)
        assert isinstance(response, dict)
        self._question.answered(response)


class TransactionVerifier:
    """Asks transaction coordinators whether partitions are part of a transaction, or to add them."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        cluster: ClusterView,
        brokers: OtherBrokers,
        transactions: TransactionCoordinator,
        *,
        retry_ms: int,
        retry_ms_max: int,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._cluster = cluster
        self._transactions = transactions
        self._retry_ms = retry_ms
        self._retry_ms_max = retry_ms_max
        self._joined: BatchedQuestions[Coordinator, TransactionQuestion] = BatchedQuestions(
            loop, brokers, PURPOSE, lambda question: question.transactional_id, request_of, give_answers
        )

    def ask(self, question: TransactionQuestion) -> None:
        """Ask the transaction coordinator of the question's transactional id.

        If the coordinator is still completing the producer's previous transaction, a question that adds partitions is
        repeated for at most `retry_ms_max`.
        """
        if question.adds:
            question = question._replace(answered=RepeatedQuestion(self, question, self._retry_ms_max).on_answer)
        self.ask_once(question)

    def ask_once(self, question: TransactionQuestion) -> None:
        index = self._transactions.partition_of(question.transactional_id)
        partition = self._cluster.image.topics.partition(self._transactions.topic.name, index)
        if partition is None or partition.leader < 0:
            question.answered(question.answer_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif partition.leader == self._node_id:
            self._ask_here(question, index)
        else:
            self._joined.add(Coordinator(partition.leader), question)

    def ask_later(self, question: TransactionQuestion, retry_count: int) -> None:
        """Repeat a question after a pause.

        DIVERGES: the pauses of Apache Kafka are all of `add.partitions.to.txn.retry.backoff.ms` (20 ms). Here they
        begin with 1 ms and double up to that: the coordinator completes a transaction, or adds the partition of another
        leader, within few milliseconds.
        """
        pause_ms = min(self._retry_ms, FIRST_RETRY_MS << retry_count)
        self._loop.call_later(pause_ms / 1000, self.ask_once, question)

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _ask_here(self, question: TransactionQuestion, index: int) -> None:
        runner = self._transactions.runner_at(index)
        if isinstance(runner, ErrorCode):
            question.answered(question.answer_with(runner))
            return
        waiter = Waiter(AnswerToken(question), 0)
        transactional_id, producer_id, producer_epoch, partitions, adds, _ = question
        if adds:
            runner.submit(
                AddPartitions(waiter, transactional_id, producer_id, producer_epoch, partitions, NEW_PROTOCOL)
            )
        else:
            runner.submit(VerifyPartitions(waiter, transactional_id, producer_id, producer_epoch, partitions))


class RepeatedQuestion:
    """Repeats a question while the coordinator completes the producer's previous transaction, for at most `patience_ms`
    (`add.partitions.to.txn.retry.backoff.max.ms`). The completion takes milliseconds; after an error the client would
    wait longer before it repeats its request.
    """

    def __init__(self, asker: TransactionVerifier, question: TransactionQuestion, patience_ms: int) -> None:
        self._asker = asker
        self._question = question
        self._until_ms = asker.now_ms() + patience_ms
        self._retry_count = 0

    def on_answer(self, answer: Answer) -> None:
        is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in answer.values()
        if is_busy and self._asker.now_ms() < self._until_ms:
            self._asker.ask_later(self._question._replace(answered=self.on_answer), self._retry_count)
            self._retry_count += 1
        else:
            self._question.answered(answer)


def request_of(questions: Sequence[TransactionQuestion]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[transaction_entry(each) for each in questions])


def transaction_entry(question: TransactionQuestion) -> AddPartitionsToTxnTransaction:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in question.partitions:
        by_topic[name].append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
    )


def give_answers(questions: Sequence[TransactionQuestion], response: object) -> None:
    if isinstance(response, NoResponseReason):
        for question in questions:
            question.answered(question.answer_with(error_without(response)))
        return
    assert isinstance(response, AddPartitionsToTxnResponse)
    answers: dict[str, dict[TopicPartition, ErrorCode]] = {
        result.transactional_id: {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    error = ErrorCode(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
    for question in questions:
        answer = answers.get(question.transactional_id, {})
        question.answered({each: answer.get(each, error) for each in question.partitions})
