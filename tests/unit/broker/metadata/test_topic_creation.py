"""Topics that a broker asks the controller for: one request at a time, and one line of the log for each reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse


class Controller:
    def __init__(self) -> None:
        self.replies: list[tuple[str, Callable[..., None]]] = []

    def submit(self, request: Any, reply: Callable[..., None]) -> None:
        assert isinstance(request, CreateTopicsRequest)
        self.replies.append((request.topics[0].name, reply))

    def answer(self, error: ErrorCode, message: str | None = None) -> None:
        name, reply = self.replies.pop()
        reply(CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=error, error_message=message)]))


def test_a_request_in_progress_is_not_repeated() -> None:
    controller = Controller()
    topics = TopicCreation(controller)
    topics.create("t")
    topics.create("t")
    assert len(controller.replies) == 1
    controller.answer(ErrorCode.NONE)
    topics.create("t")
    assert len(controller.replies) == 1


def test_a_failure_is_told_again_where_the_topic_was_there_in_between(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    topics = TopicCreation(controller)
    for error in (ErrorCode.POLICY_VIOLATION, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION):
        topics.create("t")
        controller.answer(error)
    assert len(caplog.records) == 2


def test_a_client_that_asks_again_and_again_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    topics = TopicCreation(controller)
    for message in ("too few brokers", "too few brokers", "a policy", None, None):
        topics.create("t")
        controller.answer(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    assert [each.getMessage().partition(": ")[2] for each in caplog.records] == [
        "too few brokers",
        "a policy",
        "INVALID_REPLICATION_FACTOR",
    ]
