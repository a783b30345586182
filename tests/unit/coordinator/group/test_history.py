"""The history of groups: what is kept of many events, what repeats, and what a refused step leaves."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest

from moldau.coordinator.group.history import (
    GROUP_EVENTS_MAX,
    GROUP_EVENTS_MIN,
    NODE_EVENTS_MAX,
    TEXTS,
    Cause,
    GroupEvent,
    GroupHistory,
)


def joined(number: int) -> GroupEvent:
    return GroupEvent(Cause.JOINED, f"member-{number}", "app", "/10.0.0.7")


def add(history: GroupHistory, group_id: str, event: GroupEvent, at_ms: int) -> None:
    history.add([(group_id, event._replace(first_ms=at_ms, last_ms=at_ms))])


def test_events_are_kept_in_order_with_their_times() -> None:
    history = GroupHistory()
    add(history, "g", joined(1), 1_000)
    add(history, "g", GroupEvent(Cause.LEFT, "member-1"), 3_000)
    assert [(each.cause, each.first_ms, each.last_ms) for each in history.events_of("g")] == [
        (Cause.JOINED, 1_000, 1_000),
        (Cause.LEFT, 3_000, 3_000),
    ]
    assert history.events_of("other") == ()


def test_an_event_that_repeats_the_last_one_is_counted() -> None:
    history = GroupHistory()
    for second in range(5):
        add(history, "g", GroupEvent(Cause.COMMIT_REFUSED, "m", detail="ILLEGAL_GENERATION"), second * 1_000)
    add(history, "g", GroupEvent(Cause.COMMIT_REFUSED, "m", detail="UNKNOWN_MEMBER_ID"), 9_000)
    first, second_event = history.events_of("g")
    assert (first.times, first.first_ms, first.last_ms) == (5, 0, 4_000)
    assert (second_event.times, second_event.first_ms) == (1, 9_000)
    assert len(history) == 2


def test_a_group_keeps_its_last_events() -> None:
    history = GroupHistory()
    for number in range(GROUP_EVENTS_MAX + 10):
        add(history, "g", joined(number), number)
    kept = history.events_of("g")
    assert len(kept) == GROUP_EVENTS_MAX == len(history)
    assert kept[-1].member_id == f"member-{GROUP_EVENTS_MAX + 9}"
    assert all(after.first_ms == before.first_ms + 1 for before, after in pairwise(kept))


def test_many_groups_share_the_room_of_the_node() -> None:
    """A group with many events pushes out those of a quiet one only when there is no room at all."""
    history = GroupHistory(events_max=100)
    add(history, "quiet", joined(0), 0)
    for number in range(1_000):
        add(history, f"busy-{number % 5}", joined(number), number)
    assert len(history) <= 100
    assert history.events_of("quiet")[0].member_id == "member-0"
    assert all(len(history.events_of(f"busy-{number}")) >= GROUP_EVENTS_MIN for number in range(5))


def test_groups_that_were_silent_for_longest_lose_their_events_first() -> None:
    history = GroupHistory(events_max=20)
    for number in range(30):
        add(history, f"group-{number}", joined(number), number)
    assert len(history) == 20
    assert history.events_of("group-9") == () and history.events_of("group-10")


@pytest.mark.slow
def test_ten_thousand_groups_with_a_million_events_are_bounded() -> None:
    """10,000 groups with 100 events each: five of each group are kept, and some have a sixth."""
    history = GroupHistory()
    for number in range(1_000_000):
        add(history, f"group-{number % 10_000}", GroupEvent(Cause.REBALANCE_BEGAN, number=number), number)
    assert len(history) <= NODE_EVENTS_MAX
    sizes = {len(history.events_of(f"group-{number}")) for number in range(10_000)}
    assert sizes <= {5, 6}
    assert sys.getsizeof(history.events_of("group-1")[0]) <= 128


def test_the_events_of_one_step_are_added_as_if_one_by_one() -> None:
    events = [("g", joined(1)), ("g", joined(1)), ("h", joined(2)), ("g", joined(3)), ("h", joined(2))]
    at_once, one_by_one = GroupHistory(events_max=3), GroupHistory(events_max=3)
    at_once.add(events)
    for event in events:
        one_by_one.add([event])
    assert [at_once.events_of(group_id) for group_id in "gh"] == [one_by_one.events_of(group_id) for group_id in "gh"]
    assert [each.times for each in at_once.events_of("h")] == [2]
    assert len(at_once) == len(one_by_one) == 3


def test_each_cause_has_a_sentence() -> None:
    assert TEXTS.keys() == set(Cause)
    event = GroupEvent(Cause.SESSION_EXPIRED, "m-1", number=6_000)
    assert event.text == "member 'm-1' was not heard of for its session of 6000 ms"
    assert all(GroupEvent(cause, "m", number=1, detail="d").text for cause in Cause)
