"""The truth of the Streams application: a small shop by hand, and each kind of wrong topic told."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.conformance.committed import Stored
from tests.conformance.streams.inputs import CLICKS, EVENTS_PER_ROUND, PURCHASES, USERS, Event, rounds
from tests.conformance.streams.kills import kills
from tests.conformance.streams.truth import OUTPUTS, TOPICS, Truth, additions, problems

Outputs = dict[str, list[Stored]]
FIRST_MS = 1_000_000


@pytest.fixture
def shop() -> Truth:
    truth = Truth()
    truth.add([Event(USERS, "u1", "north", FIRST_MS), Event(USERS, "u2", "north", FIRST_MS)])
    truth.add([Event(CLICKS, "u1", "5", FIRST_MS + 9_999), Event(PURCHASES, "u1", "6", FIRST_MS + 12_999)])
    truth.add([Event(CLICKS, "u1", "7", FIRST_MS + 10_000), Event(PURCHASES, "u2", "8", FIRST_MS + 11_000)])
    truth.add([Event(USERS, "u1", "south", FIRST_MS + 13_000), Event(PURCHASES, "u1", "9", FIRST_MS + 13_000)])
    return truth


def output_of(truth: Truth) -> Outputs:
    """What an application without fault writes."""
    found: Outputs = {}
    for topic in TOPICS:
        pairs = [(key, value) for key, values in truth.values[topic].items() for value in values]
        if topic == "sales-of-region":
            pairs = [("north", "1:6"), ("north", "2:14"), ("south", "1:9")]
        found[topic] = [Stored(0, offset, key, value) for offset, (key, value) in enumerate(pairs)]
    return found


def test_the_truth_of_a_small_shop(shop: Truth) -> None:
    assert {topic: shop.values[topic] for topic in OUTPUTS} == {
        "clicks-of-user": {"u1": ["1:5", "2:12"]},
        "clicks-of-window": {"u1@1000000": ["1"], "u1@1010000": ["1"]},
        "regions-of-user": {"u1": ["north", "south"], "u2": ["north"]},
        "sales": {"u1": ["north:6", "south:9"], "u2": ["north:8"]},
        "sales-of-region": {"north": ["6", "8"], "south": ["9"]},
        "pairs": {"u1": ["5&6", "7&6", "7&9"]},
    }
    assert shop.values[PURCHASES] == {"u1": ["6", "9"], "u2": ["8"]}
    assert shop.counts()["pairs"] == 3
    assert not problems(shop.values, output_of(shop))


@pytest.mark.parametrize("topic", TOPICS)
def test_a_record_that_is_lost_or_doubled_is_told(shop: Truth, topic: str) -> None:
    for index in range(len(output_of(shop)[topic])):
        lost, doubled = output_of(shop), output_of(shop)
        del lost[topic][index]
        doubled[topic].insert(index, doubled[topic][index])
        for found in (lost, doubled):
            assert [each for each in problems(shop.values, found) if each.startswith(f"{topic}, ")]


def test_order_counts_where_the_input_says_it(shop: Truth) -> None:
    found = output_of(shop)
    found["sales"][0], found["sales"][1] = found["sales"][1], found["sales"][0]
    assert problems(shop.values, found)
    found = output_of(shop)
    found["pairs"].reverse()
    assert not problems(shop.values, found)


def test_a_total_that_forgets_or_repeats_is_told() -> None:
    assert additions(["1:6", "2:14"]) == ["6", "8"]
    assert additions(["1:6", "1:6", "2:14"]) == ["6", "1:6", "2:14"]
    assert additions(["1:6", "3:14"]) == ["6", "3:14"]
    assert additions(["1:6", "2:8"]) == ["6", "2"]


def test_the_same_seed_draws_the_same_input_and_kills() -> None:
    first, second = (list(islice(rounds(7, FIRST_MS), 4)) for _ in range(2))
    assert first == second
    events = [event for each in first for event in (*each.moves, *each.events)]
    places = [(event.topic, event.key, event.timestamp_ms) for event in events]
    assert len(set(places)) == len(places)
    assert kills(7, 20) == kills(7, 20)


@pytest.mark.parametrize("count", [0, 1, 4, 20])
def test_brokers_and_instances_are_killed_alone_and_together(count: int) -> None:
    drawn = kills(7, count)
    every = [kill for together in drawn for kill in together]
    assert len(every) == count
    assert all(0 < kill.at_event < EVENTS_PER_ROUND - 1 for kill in every)
    # Never two brokers at once: the partitions would have too few replicas in sync.
    assert all(sum(kill.is_broker for kill in together) <= 1 for together in drawn)
    if count == 20:
        assert {len(together) for together in drawn} == {1, 2}
        assert sum(kill.is_broker for kill in every) == 10
