"""Carries out the group coordinator's commands about the state of share partitions, by requests to the share
coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.broker.coordinators.definition import CommandReports
from moldau.broker.coordinators.share_coordinator_messages import Answers
from moldau.broker.coordinators.share_state_persister import NO_WAITER, ShareStatePersister
from moldau.coordinator.share.events import InitializeStates, InitialOffset, StatesInitialized
from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    InitializeState,
    ReadStateSummary,
    StateAnswer,
    StateRequest,
)
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.coordinator.group.events import ShardRequest

RequestT = TypeVar("RequestT", bound=StateRequest)
ASKED_AT_ONCE: Final = 16
"""The most share partitions about which the share coordinator is asked in one iteration of the event loop. It may write
a record for each.
"""


def perform_initialization(
    persister: ShareStatePersister, command: InitializeStates, reports: CommandReports[ShardRequest]
) -> None:
    """Initialize the state of the share partitions that a command names. Report to the group's state machine which of
    them succeeded and which failed.
    """

    def answered(answers: Answers) -> None:
        if reports.is_open:
            done = all_succeeded(answers)
            reports.report(StatesInitialized(command.group_id, done, frozenset(answers) - done))

    initialize_states(persister, command.group_id, command.state_epoch, command.offsets, answered)


def initialize_states(
    persister: ShareStatePersister,
    group_id: str,
    state_epoch: int,
    offsets: Iterable[InitialOffset],
    answered: Callable[[Answers], None],
) -> None:
    requests = [
        InitializeState(NO_WAITER, ShareKey(group_id, topic_id, partition), state_epoch, start_offset)
        for topic_id, partition, start_offset in offsets
    ]
    ask_share_coordinators(persister, requests, answered)


def delete_states(
    persister: ShareStatePersister,
    group_id: str,
    states: Mapping[bytes, Iterable[int]],
    answered: Callable[[Answers], None],
) -> None:
    requests = [
        DeleteState(NO_WAITER, ShareKey(group_id, topic_id, partition))
        for topic_id, partitions in states.items()
        for partition in sorted(partitions)
    ]
    ask_share_coordinators(persister, requests, answered)


def read_summaries(
    persister: ShareStatePersister,
    group_id: str,
    states: Iterable[tuple[bytes, Iterable[int]]],
    answered: Callable[[Answers], None],
) -> None:
    """Read the states of share partitions, which are given by topic id. `states` is consumed as they are read. A topic
    without partitions costs a request its turn, so that many of them do not hold the event loop.
    """
    requests = (
        None if partition is None else ReadStateSummary(NO_WAITER, ShareKey(group_id, topic_id, partition))
        for topic_id, partitions in states
        for partition in partitions or (None,)
    )
    ask_share_coordinators(persister, requests, answered)


def ask_share_coordinators(
    persister: ShareStatePersister, requests: Iterable[RequestT | None], answered: Callable[[Answers], None]
) -> None:
    """Ask the share coordinator about several share partitions of a group. `answered` is called once, with all answers.
    The event loop runs other tasks after every `ASKED_AT_ONCE` requests, among which a None asks nothing.
    """
    answers: dict[tuple[bytes, int], StateAnswer] = {}
    left = 1
    """The number of requests without an answer, and one until all are asked."""
    rest = iter(requests)

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            answered(answers)

    def noted(request: StateRequest, answer: StateAnswer) -> None:
        answers[request.key.topic_id, request.key.partition] = answer
        one_ended()

    def ask_some() -> None:
        nonlocal left
        asked = [*islice(rest, ASKED_AT_ONCE)]
        for request in asked:
            if request is not None:
                left += 1
                persister.ask(request, partial(noted, request))
        if len(asked) == ASKED_AT_ONCE:
            persister.call_soon(ask_some)
        else:
            one_ended()

    ask_some()


def all_succeeded(answers: Answers) -> frozenset[tuple[bytes, int]]:
    return frozenset(each for each, answer in answers.items() if answer.error is ErrorCode.NONE)
