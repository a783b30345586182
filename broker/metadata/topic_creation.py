"""Topics that a broker creates through the controller: automatically created ones, and internal ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from moldau.broker.config.internal_topics import InternalTopic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = logging.getLogger("moldau.broker")


class ControllerPort(Protocol):
    """The channel to the active controller."""

    def submit(self, request: object, reply: Callable[..., None]) -> None:
        """Send a request; `reply` is called once with the response, on the event loop."""


FAILURES_MAX: Final = 1_000
"""The most failures that are remembered; beyond them the oldest is forgotten."""


class CreationFailure(NamedTuple):
    reason: str
    retry_ms: int


class TopicCreation:
    """Sends at most one CreateTopics request for each topic at a time.

    The outcome is logged; the client repeats its own request.
    """

    def __init__(self, controller: ControllerPort) -> None:
        self._controller = controller
        self._under_way: dict[str, None] = {}
        self._failures: dict[str, CreationFailure] = {}
        """Of the topics of streams groups."""
        self._told: dict[str, str] = {}
        """The last reasons that are in the log, by name: clients ask again and again."""

    def create(
        self, name: str, partitions: int = -1, replication_factor: int = -1, configs: dict[str, str] | None = None
    ) -> None:
        """Request a topic without waiting. -1 stands for the controller's default.

        A request in progress is not repeated.
        """
        if name in self._under_way:
            return
        self._under_way[name] = None

        def created(response: CreateTopicsResponse) -> None:
            del self._under_way[name]
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._tell(name, topic.error_message or ErrorCode(topic.error_code).name)

        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        # DIVERGES: Apache Kafka counts an automatic creation as a mutation of the client that asked for the topic, and
        # that of an internal topic as one of the broker; here neither is counted.
        self._controller.submit(CreateTopicsRequest(topics=[topic]), created)

    def create_for_group(self, topic: CreatableTopic, retry_ms: int) -> None:
        """Request an internal topic of a streams group without waiting. A request in progress is not repeated.

        `retry_ms`: until when (monotonic clock) a failure is remembered.
        """
        if topic.name in self._under_way:
            return
        self._under_way[topic.name] = None

        def created(response: CreateTopicsResponse) -> None:
            del self._under_way[topic.name]
            for each in response.topics:
                if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    reason = each.error_message or ErrorCode(each.error_code).name
                    self._tell(topic.name, reason)
                    self._failures.pop(topic.name, None)
                    while len(self._failures) >= FAILURES_MAX:
                        del self._failures[next(iter(self._failures))]
                    self._failures[topic.name] = CreationFailure(reason, retry_ms)

        self._controller.submit(CreateTopicsRequest(topics=[topic]), created)

    def _tell(self, name: str, reason: str) -> None:
        """Log why a topic was not created, once for each reason."""
        if self._told.pop(name, None) != reason:
            log.warning("topic %s was not created: %s", name, reason)
        while len(self._told) >= FAILURES_MAX:
            del self._told[next(iter(self._told))]
        self._told[name] = reason

    def failures(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """The reasons of those topics of streams groups that could not be created lately, by name."""
        found = {}
        for name in names:
            failure = self._failures.get(name)
            if failure is None:
                continue
            if now_ms < failure.retry_ms:
                found[name] = failure.reason
            else:
                del self._failures[name]
        return found

    def create_internal(self, topic: InternalTopic) -> None:
        """Request an internal topic with the partitions and settings that its coordinator needs."""
        self.create(topic.name, topic.partitions, topic.replication_factor, topic.configs)
