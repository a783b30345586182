"""The assignors, by the properties that they promise, over drawn groups; and by examples that show how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.coordinator.consumer.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignment,
    AssignorInput,
    assign_range,
    assign_uniform,
    assigned_pairs,
)

TOPICS = [bytes([number]) * 16 for number in range(1, 5)]
A, B, C, _ = TOPICS
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def members(**topics: list[bytes]) -> dict[str, AssignedMember]:
    return {member_id: AssignedMember(frozenset(ids)) for member_id, ids in topics.items()}


def assigning(subscribed: Mapping[str, AssignedMember], counts: Mapping[bytes, int]) -> AssignorInput:
    is_homogeneous = len({member.topics for member in subscribed.values()}) == 1
    return AssignorInput(subscribed, counts, is_homogeneous)


def with_targets(
    subscribed: Mapping[str, AssignedMember], targets: Mapping[str, Assignment]
) -> dict[str, AssignedMember]:
    return {
        member_id: member._replace(partitions=targets.get(member_id, {})) for member_id, member in subscribed.items()
    }


@st.composite
def drawn_groups(draw: st.DrawFn) -> AssignorInput:
    counts = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    one_for_all = draw(st.booleans())
    common = draw(st.frozensets(st.sampled_from(TOPICS)))
    subscribed = {
        f"member-{number}": AssignedMember(common if one_for_all else draw(st.frozensets(st.sampled_from(TOPICS))))
        for number in range(draw(st.integers(1, 6)))
    }
    return assigning(subscribed, counts)


def check(given_to: AssignorInput, targets: Mapping[str, Assignment]) -> None:
    """Every partition that somebody subscribes to has one owner, who subscribes to it."""
    owners = Counter(pair for target in targets.values() for pair in assigned_pairs(target))
    subscribed = {topic for member in given_to.members.values() for topic in member.topics}
    assert owners == {(topic, index): 1 for topic in subscribed for index in range(given_to.partition_counts[topic])}
    for member_id, target in targets.items():
        assert target.keys() <= given_to.members[member_id].topics
        assert all(target.values()), "a topic without a partition is not in it"


@MANY
@given(drawn_groups(), st.sampled_from([*ASSIGNORS.values()]))
def test_every_subscribed_partition_is_given_once_to_a_subscriber(group: AssignorInput, assignor: object) -> None:
    assert callable(assignor)
    check(group, assignor(group))


@MANY
@given(drawn_groups())
def test_uniform_changes_nothing_when_nothing_has_changed(group: AssignorInput) -> None:
    targets = assign_uniform(group)
    again = group._replace(members=with_targets(group.members, targets))
    assert assign_uniform(again) == targets


@MANY
@given(drawn_groups())
def test_uniform_is_balanced_where_all_subscribe_to_the_same(group: AssignorInput) -> None:
    sizes = [len([*assigned_pairs(target)]) for target in assign_uniform(group).values()]
    if group.is_homogeneous and sizes:
        assert max(sizes) - min(sizes) <= 1


@MANY
@given(drawn_groups())
def test_no_move_of_one_partition_would_balance_a_heterogeneous_group_better(group: AssignorInput) -> None:
    targets = assign_uniform(group)
    sizes = {member_id: len([*assigned_pairs(target)]) for member_id, target in targets.items()}
    for giver, target in targets.items():
        for topic, _index in assigned_pairs(target):
            for taker, member in group.members.items():
                assert topic not in member.topics or sizes[giver] - sizes[taker] <= 1


@MANY
@given(drawn_groups(), st.data())
def test_uniform_moves_no_more_than_a_member_that_leaves_had(group: AssignorInput, data: st.DataObject) -> None:
    targets = assign_uniform(group)
    if not group.is_homogeneous or len(group.members) < 2:
        return
    leaver = data.draw(st.sampled_from(sorted(group.members)))
    left = {member_id: member for member_id, member in group.members.items() if member_id != leaver}
    after = assign_uniform(group._replace(members=with_targets(left, targets)))
    check(group._replace(members=left), after)
    for member_id in after:
        assert {*assigned_pairs(targets[member_id])} <= {*assigned_pairs(after[member_id])}


def test_uniform_gives_a_new_member_its_share_and_moves_nothing_else() -> None:
    subscribed = members(m1=[A], m2=[A], m3=[A])
    before = {"m1": {A: frozenset({0, 1, 2})}, "m2": {A: frozenset({3, 4, 5})}}
    targets = assign_uniform(assigning(with_targets(subscribed, before), {A: 6}))
    assert targets == {"m1": {A: frozenset({0, 1})}, "m2": {A: frozenset({3, 4})}, "m3": {A: frozenset({2, 5})}}


def test_uniform_takes_the_partitions_of_a_topic_nobody_wants_any_more() -> None:
    subscribed = members(m1=[A], m2=[A])
    before = {"m1": {A: frozenset({0, 1}), B: frozenset({0})}}
    targets = assign_uniform(assigning(with_targets(subscribed, before), {A: 2, B: 1}))
    assert targets == {"m1": {A: frozenset({0})}, "m2": {A: frozenset({1})}}


def test_uniform_balances_members_with_different_topics_over_all_their_topics() -> None:
    subscribed = members(m1=[A, B], m2=[B, C], m3=[C])
    targets = assign_uniform(assigning(subscribed, {A: 3, B: 3, C: 3}))
    check(assigning(subscribed, {A: 3, B: 3, C: 3}), targets)
    assert {member_id: len([*assigned_pairs(target)]) for member_id, target in targets.items()} == {
        "m1": 3,
        "m2": 3,
        "m3": 3,
    }


def test_range_gives_runs_in_the_order_of_instance_ids_then_member_ids() -> None:
    subscribed = members(a=[A, B], b=[A, B], c=[A, B])
    subscribed["c"] = subscribed["c"]._replace(instance_id="first")
    targets = assign_range(assigning(subscribed, {A: 4, B: 2}))
    assert targets == {
        "c": {A: frozenset({0, 1}), B: frozenset({0})},
        "a": {A: frozenset({2}), B: frozenset({1})},
        "b": {A: frozenset({3})},
    }


def test_range_counts_the_subscribers_of_each_topic() -> None:
    targets = assign_range(assigning(members(a=[A], b=[A, B], c=[B]), {A: 2, B: 3}))
    assert targets == {
        "a": {A: frozenset({0})},
        "b": {A: frozenset({1}), B: frozenset({0, 1})},
        "c": {B: frozenset({2})},
    }
