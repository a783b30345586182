"""Passes requests about share state to the share coordinator, on this broker or another.

request ──▶ leader of the key's partition ──▶ here: an event of the machine                        ──▶ answered
                                          └▶ another broker: gathered by kind and group, a message ──▶ answered
no topic, no leader, not the coordinator any more, loading: again after a pause, `ATTEMPTS` times

As in Apache Kafka, one message to a broker holds what is asked of one group in one way, and the next one waits for the
answers: what is asked meanwhile is gathered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.coordinators.share_coordinator import ShareCoordinator
from moldau.broker.coordinators.share_coordinator_messages import answers_of, message_of
from moldau.broker.metadata.broker_channels import channel_to
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.peer_channel import NoResponse, PeerChannels
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_coordinator.events import StateAnswer, StateRequest
from moldau.protocol.errors import ErrorCode

Answered: TypeAlias = Callable[[StateAnswer], None]

PURPOSE: Final = "share state"
ATTEMPTS: Final = 20
"""Their pauses are 15.6 s in all, about as long as Apache Kafka's five attempts: the partition of a coordinator that
stopped gets another leader meanwhile.
"""
FIRST_RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000
KEYS_MAX: Final = 1_000
"""The most share partitions in one message to another broker."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
NOBODY: Final = Waiter(None, 0)
"""The waiter of a request that is not passed to a machine yet."""


class Destination(NamedTuple):
    """The requests that one message may hold."""

    broker_id: int
    kind: type[StateRequest]
    group_id: str


class Question(NamedTuple):
    request: StateRequest
    ended: Answered


class AnswerToken(NamedTuple):
    """The token by which the coordinator of this broker answers."""

    answered: Answered

    def complete(self, response: object) -> None:
        assert isinstance(response, StateAnswer)
        self.answered(response)


class ShareStatePersister:
    """`listener_name`: the listener between brokers; `timeout_ms`: the timeout of a request to one of them."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        cluster: ClusterView,
        channels: PeerChannels,
        topics: TopicCreation,
        coordinator: ShareCoordinator,
        listener_name: str,
        timeout_ms: int,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._cluster = cluster
        self._channels = channels
        self._topics = topics
        self._coordinator = coordinator
        self._listener_name = listener_name
        self._timeout_ms = timeout_ms
        self._gathered: defaultdict[Destination, list[Question]] = defaultdict(list)
        """What waits for a message. A destination in this table has a message under way, or one that leaves soon."""

    def ask(self, request: StateRequest, answered: Answered) -> None:
        """Ask the coordinator of the request's key. `answered` is called once, at once or later, on the loop."""
        self._attempt(request, answered, 1)

    def soon(self, go_on: Callable[[], None]) -> None:
        """Let a caller with many requests go on after others had their turn on the event loop."""
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
            self._gather(Destination(partition.leader, type(request), request.key.group_id), Question(request, ended))

    def _ask_here(self, request: StateRequest, ended: Answered) -> None:
        runner = self._coordinator.runner_of(request.key)
        if isinstance(runner, ErrorCode):
            ended(StateAnswer(runner))
        else:
            runner.submit(request._replace(waiter=Waiter(AnswerToken(ended), 0)))

    def _gather(self, destination: Destination, question: Question) -> None:
        if destination not in self._gathered:
            self._loop.call_soon(self._ask_broker, destination)
        self._gathered[destination].append(question)

    def _ask_broker(self, destination: Destination) -> None:
        """Send what is gathered for a destination."""
        questions, later = distinct_keys(self._gathered[destination])
        if not questions:
            del self._gathered[destination]
            return
        self._gathered[destination] = later
        channel = channel_to(destination.broker_id, PURPOSE, self._cluster, self._channels, self._listener_name)

        def replied(response: object) -> None:
            is_lost = isinstance(response, NoResponse)
            answers = {} if is_lost else answers_of(response)
            missing = StateAnswer(ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.UNKNOWN_SERVER_ERROR)
            for request, ended in questions:
                ended(answers.get((request.key.topic_id, request.key.partition), missing))
            self._ask_broker(destination)

        if channel is None:
            for _, ended in questions:
                ended(StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            self._loop.call_soon(self._ask_broker, destination)
            return
        channel.ask(message_of([question.request for question in questions]), replied, self._timeout_ms)


def distinct_keys(gathered: list[Question]) -> tuple[list[Question], list[Question]]:
    """The questions for one message, each key once, and the others."""
    taken: dict[object, Question] = {}
    later: list[Question] = []
    for question in gathered:
        if question.request.key in taken or len(taken) == KEYS_MAX:
            later.append(question)
        else:
            taken[question.request.key] = question
    return list(taken.values()), later
