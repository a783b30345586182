"""A topic that grows, in the three kinds of groups whose members send heartbeats.

Nothing but short heartbeats follows: they name the member and its epoch, and say nothing that would make the
coordinator look at the group again. Its members get the new partitions, each time the topic grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import pytest

from moldau.coordinator.group.kind_settings import ShareGroupSettings
from tests.support.consumer_stage import ConsumerStage
from tests.support.share_group_stage import ShareGroupStage
from tests.support.streams_stage import StreamsStage

MEMBERS: Final = ("a", "b")
SETTLED_BEATS: Final = 3
"""Short heartbeats of each member before the topic grows: the coordinator answers them without a look at the group."""
BEATS_MAX: Final = 6
SIZES: Final = (2, 4, 7, 8)


class Kind(Protocol):
    """A group of one kind, whose members subscribe to one topic with the first of `SIZES`."""

    def grow(self, count: int) -> None: ...

    def beat(self, member_id: str) -> None:
        """A short heartbeat with the member's epoch."""

    def assigned(self) -> list[int]:
        """The partitions that the members have, in order."""


class Consumers:
    def __init__(self) -> None:
        self._stage = stage = ConsumerStage(counts={"a": SIZES[0]})
        for member_id in MEMBERS:
            stage.join(member_id)
        stage.settle()

    def grow(self, count: int) -> None:
        self._stage.topics(a=count)

    def beat(self, member_id: str) -> None:
        self._stage.now_ms += 5_000
        assert self._stage.stay(member_id).error_code == 0

    def assigned(self) -> list[int]:
        members = self._stage.group.members.values()
        return sorted(index for member in members for indexes in member.assigned.values() for index in indexes)


class Shares:
    def __init__(self) -> None:
        self._stage = stage = ShareGroupStage({"t": SIZES[0]}, ShareGroupSettings(assignment_interval_ms=0))
        for member_id in MEMBERS:
            stage.beat(member_id, 0, "t")
        stage.settle(*MEMBERS)

    def grow(self, count: int) -> None:
        self._stage.set_topics({"t": count})

    def beat(self, member_id: str) -> None:
        self._stage.wait(5_000)
        members = self._stage.share_group.members
        assert self._stage.beat(member_id, members[member_id].epoch).error_code == 0

    def assigned(self) -> list[int]:
        return sorted({index for each in self._stage.share_group.members.values() for _, index in each.assigned})


class Streams:
    def __init__(self) -> None:
        self._stage = stage = StreamsStage({"in": SIZES[0]})
        stage.join("a")
        stage.join("b")
        stage.report("a", stage.group.members["a"].epoch, 0)
        stage.report("a", stage.group.members["a"].epoch, 0)
        stage.report("b", stage.group.members["b"].epoch)
        stage.report("b", stage.group.members["b"].epoch, 1)

    def grow(self, count: int) -> None:
        self._stage.set_topics({"in": count})

    def beat(self, member_id: str) -> None:
        self._stage.wait(5_000)
        assert self._stage.heartbeat(member_id, self._stage.group.members[member_id].epoch).error_code == 0

    def assigned(self) -> list[int]:
        members = self._stage.group.members.values()
        return sorted(index for member in members for indexes in member.assigned.active.values() for index in indexes)


KINDS: Final[dict[str, Callable[[], Kind]]] = {"consumer": Consumers, "share": Shares, "streams": Streams}


@pytest.mark.parametrize("kind", KINDS)
def test_short_heartbeats_alone_find_a_topic_that_grows(kind: str) -> None:
    group = KINDS[kind]()
    assert group.assigned() == [*range(SIZES[0])]
    for size in SIZES[1:]:
        for member_id in MEMBERS * SETTLED_BEATS:
            group.beat(member_id)
        group.grow(size)
        for member_id in MEMBERS * BEATS_MAX:
            group.beat(member_id)
        assert group.assigned() == [*range(size)]
