"""Offsets of consumer groups: which member may commit with which epoch (KIP-848, KIP-1251)."""

from __future__ import annotations

import pytest

from moldau.coordinator.consumer.commit import fetch_refusal
from moldau.protocol.errors import ErrorCode
from tests.support.consumer_stage import ConsumerStage

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH


def two_members() -> ConsumerStage:
    """m1 has had a-0 and a-1 since epoch 2, m2 a-2 and a-3 since epoch 3; both are in epoch 3."""
    stage = ConsumerStage()
    for member_id in ("m1", "m2"):
        stage.join(member_id)
        stage.settle()
    assert [dict(member.assigned[b"a" * 16]) for member in stage.group.members.values()] == [{0: 2, 1: 2}, {2: 3, 3: 3}]
    return stage


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "error"),
    [
        ("m1", 3, 0, NONE),
        ("m1", 3, 3, NONE),  # with the epoch of the member Apache Kafka does not look at the partition
        ("m1", 2, 0, NONE),
        ("m1", 1, 0, STALE),
        ("m1", 2, 3, STALE),
        ("m1", 4, 0, STALE),
        ("m2", 2, 2, STALE),
        ("m3", 3, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_by_epoch_and_partition(member_id: str, epoch: int, partition: int, error: ErrorCode) -> None:
    assert two_members().commit(member_id, epoch, "a", partition) == error


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, STALE)])
@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_a_wrong_epoch_within_a_transaction_has_a_name_of_its_own_since_version_6(
    epoch: int, version: int, error: ErrorCode
) -> None:
    """As Apache Kafka 4.4.0 answers."""
    stage = two_members()
    assert stage.commit_in_transaction("m1", epoch, "a", 0, version) == error
    assert stage.commit_in_transaction("m1", 3, "a", 0, version) == NONE
    assert stage.commit_in_transaction("m3", 3, "a", 0, version) == ErrorCode.UNKNOWN_MEMBER_ID


def test_old_versions_cannot_commit_for_members_of_the_consumer_protocol() -> None:
    assert two_members().commit("m1", 3, "a", 0, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_anyone_may_commit_for_an_empty_group() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.heartbeat("m1", -1)
    assert stage.commit("", -1, "a", 0) == NONE
    assert stage.commit("m1", 2, "a", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_partition_that_is_to_be_revoked_may_still_be_committed() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    stage.join("m2")
    stage.stay("m1")
    assert stage.group.members["m1"].revoking == {b"a" * 16: {2: 2, 3: 2}}
    assert stage.commit("m1", 2, "a", 3) == NONE


def test_a_static_member_that_came_back_commits_with_any_epoch() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    stage.heartbeat("m1", -2, instance_id="i1")
    stage.join("m2", instance_id="i1")
    assert stage.commit("m2", 0, "a", 0) == NONE


def test_a_read_names_no_member_or_one_with_its_epoch() -> None:
    group = two_members().group
    assert fetch_refusal(group, None, -1) == NONE
    assert fetch_refusal(group, "m1", 3) == NONE
    assert fetch_refusal(group, "m1", 2) == STALE
    assert fetch_refusal(group, "m3", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_refusal(group, None, 3) == ErrorCode.UNKNOWN_MEMBER_ID
