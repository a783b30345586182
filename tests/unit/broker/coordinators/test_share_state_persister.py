"""Requests about share state: where they go, what one message holds, what is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.coordinators.joined_questions import KEYS_MAX
from moldau.broker.coordinators.share_coordinator_messages import answers_of, message_of
from moldau.broker.coordinators.share_state_persister import ATTEMPTS, NO_WAITER, ShareStatePersister
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.coordinator.share_coordinator.state import ShareKey, StateBatch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import delete_share_group_state as delete
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages import read_share_group_state_summary as summary
from moldau.testing.simulation.world import World
from tests.support.other_brokers import brokers_behind

HERE, THERE, NOWHERE = 1, 2, -1
T, U = b"t" * 16, b"u" * 16


def key(partition: int, topic_id: bytes = T, group_id: str = "g") -> ShareKey:
    return ShareKey(group_id, topic_id, partition)


class Stage:
    """Two brokers; `leader` leads all partitions of the internal topic."""

    def __init__(self, leader: int = THERE) -> None:
        self.leader = leader
        self.has_endpoint = True
        self.messages: list[tuple[Any, Callable[[object], None]]] = []
        self.submitted: list[Any] = []
        self.created = 0
        self.answers: list[tuple[ShareKey, StateAnswer]] = []
        endpoint = SimpleNamespace(host="there", port=9092)
        brokers = SimpleNamespace(
            get=lambda _: SimpleNamespace(endpoints={"PLAINTEXT": endpoint} if self.has_endpoint else {})
        )
        image = SimpleNamespace(
            topics=SimpleNamespace(partition=self._partition), cluster=SimpleNamespace(brokers=brokers)
        )
        coordinator = SimpleNamespace(
            shards=SimpleNamespace(topic=SimpleNamespace(name="__share_group_state")),
            partition_of=lambda _: 0,
            runner_of=lambda _: SimpleNamespace(submit=self.submitted.append),
        )
        cluster = cast("Any", SimpleNamespace(image=image))
        self.persister = ShareStatePersister(
            HERE,
            asyncio.get_running_loop(),
            cluster,
            brokers_behind(cluster, self._send),
            cast("Any", SimpleNamespace(create_internal=self._create)),
            cast("Any", coordinator),
        )

    def _partition(self, topic: str, index: int) -> SimpleNamespace | None:
        assert (topic, index) == ("__share_group_state", 0)
        return None if self.leader == NOWHERE else SimpleNamespace(leader=self.leader)

    def _create(self, topic: object) -> None:
        self.created += 1

    def _send(self, message: object, reply: Callable[[object], None]) -> None:
        self.messages.append((message, reply))

    def ask(self, *requests: StateRequest) -> None:
        for request in requests:
            self.persister.ask(request, partial(self._answered, request.key))

    def _answered(self, about: ShareKey, answer: StateAnswer) -> None:
        self.answers.append((about, answer))

    def reply(self, *errors: tuple[bytes, int, ErrorCode]) -> None:
        """Answer the oldest message, a DeleteShareGroupState."""
        _, reply = self.messages.pop(0)
        results = [
            delete.DeleteStateResult(
                topic_id=topic_id, partitions=[delete.PartitionResult(partition=index, error_code=error)]
            )
            for topic_id, index, error in errors
        ]
        reply(delete.DeleteShareGroupStateResponse(results=results))

    @property
    def asked(self) -> list[tuple[str, str, list[tuple[bytes, list[int]]]]]:
        """Of each message that waits: its kind, its group, and its partitions by topic."""
        return [
            (
                type(message).__name__.removesuffix("ShareGroupStateRequest"),
                message.group_id,
                [(topic.topic_id, [each.partition for each in topic.partitions]) for topic in message.topics],
            )
            for message, _ in self.messages
        ]


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time."""
    with World(1) as world:
        world.run(story(), limit_s=120)


def test_one_message_holds_what_is_asked_of_one_group_in_one_way() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask(*(DeleteState(NO_WAITER, key(index, topic)) for topic in (T, U) for index in (0, 1)))
        stage.ask(DeleteState(NO_WAITER, key(0, group_id="h")), ReadState(NO_WAITER, key(0), 3))
        await asyncio.sleep(0)
        assert stage.asked == [
            ("Delete", "g", [(T, [0, 1]), (U, [0, 1])]),
            ("Delete", "h", [(T, [0])]),
            ("Read", "g", [(T, [0])]),
        ]
        stage.reply((T, 0, ErrorCode.NONE), (T, 1, ErrorCode.INVALID_REQUEST), (U, 0, ErrorCode.NONE))
        assert [(each.topic_id, each.partition, answer.error) for each, answer in stage.answers] == [
            (T, 0, ErrorCode.NONE),
            (T, 1, ErrorCode.INVALID_REQUEST),
            (U, 0, ErrorCode.NONE),
            (U, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ]

    play(story)


def test_what_is_asked_while_a_message_is_under_way_waits_for_its_response() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask(DeleteState(NO_WAITER, key(0)))
        await asyncio.sleep(0)
        stage.ask(DeleteState(NO_WAITER, key(1)), DeleteState(NO_WAITER, key(2)), DeleteState(NO_WAITER, key(1)))
        await asyncio.sleep(1)
        assert len(stage.messages) == 1
        stage.reply((T, 0, ErrorCode.NONE))
        assert stage.asked == [("Delete", "g", [(T, [1, 2])])], "each key once"
        stage.reply((T, 1, ErrorCode.NONE), (T, 2, ErrorCode.NONE))
        assert stage.asked == [("Delete", "g", [(T, [1])])]
        stage.reply((T, 1, ErrorCode.NONE))
        assert not stage.messages and len(stage.answers) == 4
        stage.ask(DeleteState(NO_WAITER, key(5)))
        await asyncio.sleep(0)
        assert stage.asked == [("Delete", "g", [(T, [5])])], "nothing is under way any more"

    play(story)


def test_a_message_has_a_limit() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask(*(DeleteState(NO_WAITER, key(index)) for index in range(KEYS_MAX + 2)))
        await asyncio.sleep(0)
        ((_, _, ((_, partitions),)),) = stage.asked
        assert len(partitions) == KEYS_MAX
        stage.reply()
        ((_, _, ((_, partitions),)),) = stage.asked
        assert partitions == [KEYS_MAX, KEYS_MAX + 1]

    play(story)


def test_a_lost_answer_and_a_coordinator_that_moves_are_asked_again() -> None:
    async def story() -> None:
        stage = Stage()
        stage.ask(DeleteState(NO_WAITER, key(0)), DeleteState(NO_WAITER, key(1)))
        await asyncio.sleep(0)
        _, reply = stage.messages.pop()
        reply(NoResponseReason.DISCONNECTED)
        await asyncio.sleep(0.06)
        stage.reply((T, 0, ErrorCode.NOT_COORDINATOR), (T, 1, ErrorCode.NONE))
        assert [each.partition for each, _ in stage.answers] == [1]
        stage.leader = HERE
        await asyncio.sleep(0.2)
        (event,) = stage.submitted
        assert event.key == key(0)
        event.waiter.token.complete(StateAnswer())
        assert stage.answers[1] == (key(0), StateAnswer())

    play(story)


def test_without_a_topic_it_is_created_and_asked_for_a_limited_time() -> None:
    async def story() -> None:
        stage = Stage(NOWHERE)
        stage.ask(DeleteState(NO_WAITER, key(0)))
        await asyncio.sleep(30)
        assert (stage.created, stage.messages) == (ATTEMPTS, [])
        assert [answer.error for _, answer in stage.answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        stage.leader, stage.has_endpoint = THERE, False
        stage.ask(DeleteState(NO_WAITER, key(1)))
        await asyncio.sleep(30)
        assert [answer.error for _, answer in stage.answers[1:]] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    play(story)


@pytest.mark.parametrize(
    "requests",
    [
        [InitializeState(NO_WAITER, key(0), 1, 7), InitializeState(NO_WAITER, key(3), 1, -1)],
        [
            WriteState(NO_WAITER, key(0), 1, 2, 3, 4, (StateBatch(3, 5, 2, 1),)),
            WriteState(NO_WAITER, key(1), 1, 2, 9, 0, ()),
        ],
        [ReadStateSummary(NO_WAITER, key(0)), ReadStateSummary(NO_WAITER, key(1, U))],
    ],
    ids=lambda requests: type(requests[0]).__name__,
)
def test_a_message_says_what_its_requests_say(requests: list[Any]) -> None:
    message: Any = message_of(requests)
    said = [
        (topic.topic_id, each.partition, getattr(each, "start_offset", None), len(getattr(each, "state_batches", ())))
        for topic in message.topics
        for each in topic.partitions
    ]
    assert said == [
        (
            each.key.topic_id,
            each.key.partition,
            getattr(each, "start_offset", None),
            len(getattr(each, "batches", ())),
        )
        for each in requests
    ]


def test_answers_are_read_with_their_state() -> None:
    batch = read.StateBatch(first_offset=3, last_offset=4, delivery_state=2, delivery_count=1)
    state = read.PartitionResult(partition=1, error_code=0, state_epoch=5, start_offset=3, state_batches=[batch])
    response = read.ReadShareGroupStateResponse(results=[read.ReadStateResult(topic_id=T, partitions=[state])])
    assert answers_of(response) == {
        (T, 1): StateAnswer(state_epoch=5, start_offset=3, batches=(StateBatch(3, 4, 2, 1),))
    }
    sums = summary.PartitionResult(
        partition=1, error_code=0, state_epoch=5, leader_epoch=2, start_offset=3, delivery_complete_count=6
    )
    summed = summary.ReadShareGroupStateSummaryResponse(
        results=[summary.ReadStateSummaryResult(topic_id=U, partitions=[sums])]
    )
    assert answers_of(summed) == {
        (U, 1): StateAnswer(state_epoch=5, leader_epoch=2, start_offset=3, delivery_complete_count=6)
    }
