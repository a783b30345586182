"""Creates topics through the controller: automatically created ones, internal ones, and those of streams groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from moldau.broker.config.internal_topics import InternalTopic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

log = logging.getLogger("moldau.broker")


class ControllerPort(Protocol):
    """Sends requests to the active controller."""

    def submit(self, request: object, reply: Callable[..., None]) -> None:
        """Send a request; `reply` is called once with the response, on the event loop."""


FAILURES_MAX: Final = 1_000
"""The largest number of remembered failures; beyond it the oldest is forgotten."""


class CreationFailure(NamedTuple):
    reason: str
    retry_ms: int


class TopicCreation:
    """Requests the creation of topics, with at most one request in progress for each topic.

    The outcome is logged; a client that needs the topic repeats its own request.
    """

    def __init__(self, controller: ControllerPort) -> None:
        self._controller = controller
        self._under_way: dict[str, None] = {}
        self._failures: dict[str, CreationFailure] = {}
        """By topic: the reason why it could not be created, until it is created. Each reason is logged once, because
        clients repeat their requests.
        """

    def create(
        self, name: str, partitions: int = -1, replication_factor: int = -1, configs: dict[str, str] | None = None
    ) -> None:
        """Request the creation of a topic, without waiting. -1 stands for the controller's default.

        Nothing is sent if a request for the topic is in progress.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        self._request(topic)

    def create_for_group(self, topic: CreatableTopic, retry_ms: int) -> None:
        """Request the creation of an internal topic of a streams group, without waiting. Nothing is sent if a request
        for the topic is in progress.

        `retry_ms` is the time (monotonic clock) until which `failures` reports a failure.
        """
        self._request(topic, retry_ms)

    def _request(self, topic: CreatableTopic, retry_ms: int = 0) -> None:
        if topic.name in self._under_way:
            return
        self._under_way[topic.name] = None

        def created(response: CreateTopicsResponse) -> None:
            del self._under_way[topic.name]
            for each in response.topics:
                before = self._failures.pop(topic.name, None)
                if each.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    continue
                reason = each.error_message or ErrorCode(each.error_code).name
                if before is None or before.reason != reason:
                    log.warning("topic %s was not created: %s", topic.name, reason)
                while len(self._failures) >= FAILURES_MAX:
                    del self._failures[next(iter(self._failures))]
                self._failures[topic.name] = CreationFailure(reason, retry_ms)

        # DIVERGES: Apache Kafka counts an automatic creation as a mutation of the client that asked for the topic, and
        # that of an internal topic as one of the broker; here neither is counted.
        self._controller.submit(CreateTopicsRequest(topics=[topic]), created)

    def failures(self, names: Iterable[str], now_ms: int) -> dict[str, str]:
        """The reasons why topics of streams groups could not be created, by topic name. A failure is reported until its
        `retry_ms`.
        """
        found = ((name, self._failures.get(name)) for name in names)
        return {name: failure.reason for name, failure in found if failure is not None and now_ms < failure.retry_ms}

    def create_internal(self, topic: InternalTopic) -> None:
        """Request an internal topic with the partitions and settings that its coordinator needs."""
        self.create(topic.name, topic.partitions, topic.replication_factor, topic.configs)
