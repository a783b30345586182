"""Batches questions to coordinators on other brokers: questions that arrive while a request is in progress share the
next request.

question ──▶ gathered by destination ──▶ a request, each key once ──▶ answered
                   ▲                           │ under way
                   └── asked meanwhile ◀───────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.protocol.errors import ErrorCode

KEYS_MAX: Final = 1_000
"""The most questions that one request carries."""


class Destination(Protocol):
    """The receiver of a request, and the attributes that all questions in the request share."""

    @property
    def broker_id(self) -> int: ...


DestinationT = TypeVar("DestinationT", bound=Destination)
QuestionT = TypeVar("QuestionT")


class BatchedQuestions(Generic[DestinationT, QuestionT]):
    """Sends the questions of one purpose to coordinators on other brokers. The questions that wait for one destination
    are sent in one request.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        brokers: OtherBrokers,
        purpose: str,
        key_of: Callable[[QuestionT], Hashable],
        request_of: Callable[[Sequence[QuestionT]], object],
        answered: Callable[[Sequence[QuestionT], object], None],
    ) -> None:
        """`key_of` returns the key that identifies a question in a response. A request has each key at most once.
        `request_of` makes the request for several questions. `answered` gets these questions, and the response or the
        `NoResponseReason`.
        """
        self._loop = loop
        self._brokers = brokers
        self._purpose = purpose
        self._key_of = key_of
        self._request_of = request_of
        self._answered = answered
        self._gathered: dict[DestinationT, list[QuestionT]] = {}
        """The questions that wait for the next request, by destination. A destination in this table has a request in
        progress, or one that will be sent soon.
        """

    def add(self, destination: DestinationT, question: QuestionT) -> None:
        if destination not in self._gathered:
            self._gathered[destination] = []
            self._loop.call_soon(self._send, destination)
        self._gathered[destination].append(question)

    def _send(self, destination: DestinationT) -> None:
        taken: dict[Hashable, QuestionT] = {}
        later: list[QuestionT] = []
        for question in self._gathered[destination]:
            if len(taken) == KEYS_MAX or self._key_of(question) in taken:
                later.append(question)
            else:
                taken[self._key_of(question)] = question
        if not taken:
            del self._gathered[destination]
            return
        self._gathered[destination] = later
        questions = [*taken.values()]

        def replied(response: object) -> None:
            try:
                self._answered(questions, response)
            finally:  # A bug in one answer must not hold up the questions that wait for the destination.
                self._send(destination)

        self._brokers.ask(destination.broker_id, self._purpose, self._request_of(questions), replied)


def error_without(response: object) -> ErrorCode:
    """The error for the questions of a request that got no response; `response` is its `NoResponseReason`."""
    return (
        ErrorCode.COORDINATOR_NOT_AVAILABLE if response is NoResponseReason.NO_ADDRESS else ErrorCode.NETWORK_EXCEPTION
    )
