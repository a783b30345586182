"""A member on its way to its target assignment, state by state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.coordinator.consumer.assignors import Assignment
from moldau.coordinator.consumer.member import ConsumerMember, MemberState, PartitionEpochs
from moldau.coordinator.consumer.reconciliation import OwnedPartitions, Reconciliation

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
A, B = b"a" * 16, b"b" * 16


def member(
    epoch: int, assigned: PartitionEpochs, state: MemberState = STABLE, revoking: PartitionEpochs | None = None
) -> ConsumerMember:
    return ConsumerMember(
        "m", epoch=epoch, previous_epoch=epoch - 1, state=state, assigned=assigned, revoking=revoking or {}
    )


def towards(
    target: Assignment,
    *,
    epoch: int = 8,
    owned: OwnedPartitions | None = None,
    others: set[tuple[bytes, int]] | None = None,
    topics: tuple[bytes, ...] = (A, B),
    is_changed: bool = False,
) -> Reconciliation:
    def is_owned(topic: bytes, partition: int) -> bool:
        return (topic, partition) in (others or ())

    return Reconciliation(epoch, target, frozenset(topics), is_changed, owned, is_owned)


def test_a_member_at_the_epoch_of_its_target_does_not_change() -> None:
    before = member(8, {A: {0: 5}})
    assert towards({A: frozenset({0})}).step(before) is before


def test_free_partitions_are_given_at_once_in_the_new_epoch() -> None:
    after = towards({A: frozenset({0, 1})}).step(member(7, {A: {0: 5}}))
    assert after is not None
    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 8, 7)
    assert after.assigned == {A: {0: 5, 1: 8}}, "a partition that stays keeps the epoch in which it came"


def test_a_partition_to_give_up_keeps_the_member_in_its_epoch() -> None:
    after = towards({A: frozenset({1})}).step(member(7, {A: {0: 5, 1: 6}}))
    assert after is not None
    assert (after.state, after.epoch) == (UNREVOKED, 7)
    assert (after.assigned, after.revoking) == ({A: {1: 6}}, {A: {0: 5}})


def test_no_partition_is_given_while_another_is_to_be_revoked() -> None:
    after = towards({B: frozenset({0})}).step(member(7, {A: {0: 5}}))
    assert after is not None
    assert after.assigned == {}


@pytest.mark.parametrize("owned", [None, {A: [0]}, {A: [0, 1], B: [3]}])
def test_a_member_that_still_owns_what_it_must_revoke_waits(owned: OwnedPartitions | None) -> None:
    before = member(7, {A: {1: 6}}, UNREVOKED, {A: {0: 5}})
    assert towards({A: frozenset({1})}, owned=owned).step(before) is before


def test_after_the_revocation_the_member_takes_the_next_step() -> None:
    before = member(7, {A: {1: 6}}, UNREVOKED, {A: {0: 5}})
    after = towards({A: frozenset({1, 2})}, owned={A: [1]}).step(before)
    assert after is not None
    assert (after.state, after.epoch, after.assigned, after.revoking) == (STABLE, 8, {A: {1: 6, 2: 8}}, {})


def test_a_partition_of_another_member_is_waited_for() -> None:
    after = towards({A: frozenset({0, 1})}, others={(A, 1)}).step(member(7, {}))
    assert after is not None
    assert (after.state, after.epoch, after.assigned) == (UNRELEASED, 8, {A: {0: 8}})
    last = towards({A: frozenset({0, 1})}).step(after)
    assert last is not None
    assert (last.state, last.assigned) == (STABLE, {A: {0: 8, 1: 8}})


def test_a_partition_that_comes_back_before_its_revocation_is_not_waited_for() -> None:
    before = member(7, {}, UNREVOKED, {A: {0: 5}})
    after = towards({A: frozenset({0})}, owned={}, others={(A, 0)}).step(before)
    assert after is not None
    assert (after.state, after.assigned) == (STABLE, {A: {0: 8}})


def test_partitions_of_a_topic_without_subscription_go_ahead_of_the_next_target() -> None:
    before = member(8, {A: {0: 5}, B: {0: 5}})
    after = towards({A: frozenset({0}), B: frozenset({0})}, topics=(A,), is_changed=True).step(before)
    assert after is not None
    assert (after.state, after.epoch, after.assigned, after.revoking) == (UNREVOKED, 8, {A: {0: 5}}, {B: {0: 5}})


def test_what_the_member_has_given_up_already_is_only_taken_off() -> None:
    before = member(8, {A: {0: 5}, B: {0: 5}})
    after = towards({}, topics=(A,), is_changed=True, owned={A: [0]}).step(before)
    assert after == replace(before, previous_epoch=8, assigned={A: {0: 5}})


def test_a_target_without_subscription_is_not_given() -> None:
    after = towards({B: frozenset({0})}, topics=(A,)).step(member(7, {}))
    assert after is not None
    assert (after.state, after.epoch, after.assigned) == (STABLE, 8, {})


def test_a_member_in_an_unknown_state_must_come_without_partitions() -> None:
    before = member(7, {}, UNKNOWN)
    assert towards({A: frozenset({0})}).step(before) is None
    assert towards({A: frozenset({0})}, owned={A: [0]}).step(before) is None
    after = towards({A: frozenset({0})}, owned={}).step(before)
    assert after is not None
    assert (after.state, after.epoch, after.assigned) == (STABLE, 8, {A: {0: 8}})
