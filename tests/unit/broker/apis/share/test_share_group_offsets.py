"""The lag of share groups (KIP-1226): what is left to deliver, told only if both of its ends are known."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from moldau.broker.apis.share.share_group_offsets import GroupStates, describe_states
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.share_coordinator.events import StateAnswer
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)

TOPIC_ID: Final = bytes(range(16))
Latest = Callable[[int | ErrorCode], None]


class Stage:
    """A description of one group; the log ends are told when the test says so."""

    def __init__(self) -> None:
        self.asked: dict[int, Latest] = {}
        topics = SimpleNamespace(by_id={TOPIC_ID: SimpleNamespace(name="t")})
        cluster = SimpleNamespace(image=SimpleNamespace(topics=topics))
        self.services: Any = SimpleNamespace(cluster=cluster, latest_offsets=self)
        self.described = DescribeShareGroupOffsetsResponseGroup(group_id="g")
        self.reply: Pending[DescribeShareGroupOffsetsResponse]

    def ask(self, topic: str, partition: int, answered: Latest) -> None:
        assert topic == "t"
        self.asked[partition] = answered

    def answered(self, *answers: StateAnswer) -> None:
        states = {(TOPIC_ID, index): answer for index, answer in enumerate(answers)}
        describing = describe_states(self.services, [GroupStates(self.described, states)])
        with pytest.raises(StopIteration) as end:
            while True:
                next(describing)
        self.reply = end.value.value

    @property
    def partitions(self) -> list[tuple[int, int, int]]:
        """(start offset, lag, error) of each partition."""
        (topic,) = self.described.topics
        return [(each.start_offset, each.lag, each.error_code) for each in topic.partitions]


def state(start_offset: int, complete_count: int) -> StateAnswer:
    return StateAnswer(leader_epoch=3, start_offset=start_offset, delivery_complete_count=complete_count)


@pytest.mark.parametrize(
    ("start_offset", "complete_count", "latest", "lag"),
    [(0, 0, 0, 0), (0, 0, 10, 10), (4, 0, 10, 6), (4, 5, 10, 1), (4, 6, 10, 0), (10, 0, 10, 0)],
)
def test_the_lag_is_what_is_left_behind_the_start_without_what_is_done(
    start_offset: int, complete_count: int, latest: int, lag: int
) -> None:
    stage = Stage()
    stage.answered(state(start_offset, complete_count))
    stage.asked[0](latest)
    assert stage.partitions == [(start_offset, lag, 0)]


def test_the_answer_waits_for_all_ends_whatever_their_order() -> None:
    stage = Stage()
    stage.answered(state(1, 0), state(2, 1), state(3, 2))
    for index in (2, 0):
        stage.asked[index](10 * (index + 1))
        assert not stage.reply.is_complete
    stage.asked[1](20)
    assert stage.reply.is_complete and stage.partitions == [(1, 9, 0), (2, 17, 0), (3, 25, 0)]


def test_a_lag_that_is_not_known_is_not_told() -> None:
    stage = Stage()
    stage.answered(StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), state(-1, 0), state(5, -1), state(5, 0))
    assert [*stage.asked] == [3], "no other end would be of use"
    stage.asked[3](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert stage.reply.is_complete
    assert stage.partitions == [(-1, -1, 0), (-1, -1, 0), (5, -1, 0), (0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
