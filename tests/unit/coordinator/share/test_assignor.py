"""The assignor `simple`: partitions and members are shared evenly, and members keep what they had."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from moldau.coordinator.share.assignor import Assigned, assign_simple

T, U = b"t" * 16, b"u" * 16


def sizes(assigned: dict[str, Assigned]) -> list[int]:
    return sorted(len(each) for each in assigned.values())


def test_partitions_are_divided_among_fewer_members() -> None:
    subscriptions = {"a": frozenset({T}), "b": frozenset({T})}
    first = assign_simple(subscriptions, {T: range(4)}, {})
    assert sizes(first) == [2, 2] and not first["a"] & first["b"]
    assert assign_simple(subscriptions, {T: range(4)}, first) == first
    third = assign_simple({**subscriptions, "c": frozenset({T})}, {T: range(4)}, first)
    assert sizes(third) == [1, 1, 2]
    assert all(third[member] & first[member] for member in "ab"), "members keep what they had"


def test_a_partition_is_shared_among_more_members() -> None:
    subscriptions = {member: frozenset({T}) for member in "abcde"}
    assigned = assign_simple(subscriptions, {T: range(2)}, {})
    assert {index for each in assigned.values() for _, index in each} == {0, 1}
    assert sizes(assigned) == [1, 1, 1, 1, 2]


class CountedWalks(frozenset[tuple[bytes, int]]):
    """A former target that counts how often it is walked."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        type(self).walks += 1
        return super().__iter__()


def test_a_former_target_is_walked_once_also_for_many_topics() -> None:
    topics = [bytes([number]) * 16 for number in range(50)]
    subscriptions = {"a": frozenset(topics), "b": frozenset(topics[1:])}
    before = CountedWalks((topic, 0) for topic in topics)
    assigned = assign_simple(subscriptions, dict.fromkeys(topics, range(2)), {"a": before})
    assert before.walks == 1
    assert len(assigned["a"]) == 51 and len(assigned["b"]) == 49, "of the first topic all, and half of the others"
    assert before <= assigned["a"]


def test_members_with_other_subscriptions_get_partitions_of_their_topics() -> None:
    subscriptions = {"a": frozenset({T}), "b": frozenset({T, U})}
    assigned = assign_simple(subscriptions, {T: range(2), U: range(3)}, {})
    assert assigned["b"] >= {(U, 0), (U, 1), (U, 2)}
    assert len(assigned["a"]) == 1 and {topic for topic, _ in assigned["a"]} == {T}


def test_partitions_that_are_not_initialized_are_not_assigned() -> None:
    assert assign_simple({"a": frozenset({T, U})}, {T: {1}}, {}) == {"a": frozenset({(T, 1)})}
    assert assign_simple({"a": frozenset()}, {T: {1}}, {"a": frozenset({(T, 1)})}) == {"a": frozenset()}


@pytest.mark.parametrize("seed", range(50))
def test_every_partition_has_a_member_and_no_member_has_much_more_than_another(seed: int) -> None:
    draw = random.Random(seed)
    members = [f"m{number}" for number in range(draw.randint(1, 12))]
    subscriptions = {member: frozenset({T}) for member in members}
    before: dict[str, Assigned] = {}
    for _ in range(5):
        count = draw.randint(1, 20)
        before = assign_simple(subscriptions, {T: range(count)}, before)
        assert {index for each in before.values() for _, index in each} == set(range(count))
        found = sizes(before)
        assert found[-1] - found[0] <= 1
        if len(members) > 1:
            gone = draw.choice(members)
            subscriptions.pop(gone, None)
            before.pop(gone, None)
            subscriptions[draw.choice(members)] = frozenset({T})
