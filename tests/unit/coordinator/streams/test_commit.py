"""Offsets of streams groups: epochs of members and of tasks."""

from __future__ import annotations

import pytest

from moldau.coordinator.streams.commit import fetch_refusal
from moldau.protocol.errors import ErrorCode
from tests.support.streams_stage import StreamsStage


@pytest.fixture
def stage() -> StreamsStage:
    """Member `a` at epoch 3 has task 0 since epoch 2; `b` has task 1 since epoch 3."""
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.join("b")
    stage.report("a", 2, 0, 1)
    stage.report("a", 2, 0)
    stage.report("b", 3)
    assert stage.state == "Stable"
    return stage


@pytest.mark.parametrize(
    ("member", "epoch", "partition", "error"),
    [
        ("a", 3, 0, ErrorCode.NONE),
        ("a", 3, 1, ErrorCode.NONE),
        ("a", 2, 0, ErrorCode.NONE),
        ("a", 2, 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 3, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_needs_the_members_epoch_or_one_since_it_has_the_task(
    stage: StreamsStage, member: str, epoch: int, partition: int, error: ErrorCode
) -> None:
    assert stage.commit(member, epoch, partition=partition) == error


def test_a_task_to_revoke_can_still_be_committed() -> None:
    stage = StreamsStage({"in": 2})
    stage.join("a")
    stage.join("b")
    stage.join("c")
    stage.report("a", 2, 0, 1)
    assert stage.group.members["a"].to_revoke.active == {"0": {1: 2}}
    assert stage.report("a", 2, 0).member_epoch == 4
    assert stage.commit("a", 2, partition=0) == ErrorCode.NONE
    assert stage.commit("a", 3, partition=1) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_topic_outside_of_the_topology_needs_the_current_epoch(stage: StreamsStage) -> None:
    assert stage.commit("a", 3, topic="other") == ErrorCode.NONE
    assert stage.commit("a", 2, topic="other") == ErrorCode.STALE_MEMBER_EPOCH


def test_an_old_version_cannot_commit(stage: StreamsStage) -> None:
    assert stage.commit("a", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION


def test_without_members_an_operator_commits(stage: StreamsStage) -> None:
    stage.leave("a")
    stage.leave("b")
    assert stage.commit("", -1) == ErrorCode.NONE
    assert stage.commit("a", 3) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_fetch_needs_the_members_epoch(stage: StreamsStage, member: str | None, epoch: int, error: ErrorCode) -> None:
    assert fetch_refusal(stage.group, member, epoch) == error


def test_topics_of_the_topology_are_used_while_there_are_members(stage: StreamsStage) -> None:
    assert stage.group.is_subscribed_to("in") and not stage.group.is_subscribed_to("other")
    assert stage.group.deletion_error() == ErrorCode.NON_EMPTY_GROUP
    stage.leave("a")
    stage.leave("b")
    assert not stage.group.is_subscribed_to("in")
    assert stage.group.deletion_error() == ErrorCode.NONE
