"""Passes requests about share state to the share coordinator, on this broker or another.

request ──▶ leader of the key's partition ──▶ here: an event of the machine                        ──▶ answered
                                          └▶ another broker: gathered by kind and group, a message ──▶ answered
no topic, no leader, not the coordinator any more, loading: again after a pause, `ATTEMPTS` times

As in Apache Kafka, one message to a broker holds requests of one kind about one group. The next message waits for the
answers; requests that arrive meanwhile are gathered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from moldau.broker.coordinators.joined_questions import BatchedQuestions, error_without
from moldau.broker.coordinators.share_coordinator import ShareCoordinator
from moldau.broker.coordinators.share_coordinator_messages import answers_of, message_of
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_coordinator.events import StateAnswer, StateRequest
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

Answered: TypeAlias = Callable[[StateAnswer], None]

PURPOSE: Final = "share state"
ATTEMPTS: Final = 20
"""The most attempts of a request. The pauses between them are 15.6 s in all, about as long as those of Apache Kafka's
five attempts. In that time the partition of a coordinator that stopped gets another leader.
"""
FIRST_RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
NO_WAITER: Final = Waiter(None, 0)
"""The waiter of a request that no state machine has got yet: it takes no reply."""


class Destination(NamedTuple):
    """The receiver of a message, with what all requests in the message have in common: their kind and their group."""

    broker_id: int
    kind: type[StateRequest]
    group_id: str


class Question(NamedTuple):
    request: StateRequest
    ended: Answered


class AnswerToken(NamedTuple):
    """Passes the reply of the share coordinator on this broker to `answered`."""

    answered: Answered

    def complete(self, response: object) -> None:
        assert isinstance(response, StateAnswer)
        self.answered(response)


class ShareStatePersister:
    """Passes requests about share partitions to their share coordinators, and repeats those that fail with a retriable
    error.
    """

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        cluster: ClusterView,
        brokers: OtherBrokers,
        topics: TopicCreation,
        coordinator: ShareCoordinator,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._cluster = cluster
        self._topics = topics
        self._coordinator = coordinator
        self._joined: BatchedQuestions[Destination, Question] = BatchedQuestions(
            loop, brokers, PURPOSE, lambda question: question.request.key, message_with, give_answers
        )

    def ask(self, request: StateRequest, answered: Answered) -> None:
        """Pass a request to the share coordinator of its key. `answered` is called once on the event loop, before this
        returns or later.
        """
        self._attempt(request, answered, 1)

    def call_soon(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in the next iteration of the event loop, so that other tasks run between many requests of a
        caller.
        """
        self._loop.call_soon(go_on)

    def _attempt(self, request: StateRequest, answered: Answered, number: int) -> None:
        def ended(answer: StateAnswer) -> None:
            if answer.error in RETRIABLE and number < ATTEMPTS:
                pause_ms = min(FIRST_RETRY_MS << (number - 1), RETRY_MS_MAX)
                self._loop.call_later(pause_ms / 1000, self._attempt, request, answered, number + 1)
            else:
                answered(answer)

        topic = self._coordinator.shards.topic
        index = self._coordinator.partition_of(request.key)
        partition = self._cluster.image.topics.partition(topic.name, index)
        if partition is None:
            self._topics.create_internal(topic)
            ended(StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif partition.leader == self._node_id:
            self._ask_here(request, ended)
        else:
            destination = Destination(partition.leader, type(request), request.key.group_id)
            self._joined.add(destination, Question(request, ended))

    def _ask_here(self, request: StateRequest, ended: Answered) -> None:
        runner = self._coordinator.runner_of(request.key)
        if isinstance(runner, ErrorCode):
            ended(StateAnswer(runner))
        else:
            runner.submit(request._replace(waiter=Waiter(AnswerToken(ended), 0)))


def message_with(questions: Sequence[Question]) -> object:
    return message_of([question.request for question in questions])


def give_answers(questions: Sequence[Question], response: object) -> None:
    is_lost = isinstance(response, NoResponseReason)
    answers = {} if is_lost else answers_of(response)
    missing = StateAnswer(error_without(response) if is_lost else ErrorCode.UNKNOWN_SERVER_ERROR)
    for request, ended in questions:
        ended(answers.get((request.key.topic_id, request.key.partition), missing))
