"""Who waits for a commit hears of it once, in the order of the log."""

from __future__ import annotations

from functools import partial

import pytest

from protocol.errors import ErrorCode
from replication.commit_waits import CommitWaits


def waits(heard: list[tuple[int, ErrorCode]], *offsets: int) -> CommitWaits:
    made = CommitWaits()
    for offset in offsets:
        made.add(offset, partial(note, heard, offset))
    return made


def note(heard: list[tuple[int, ErrorCode]], offset: int, error: ErrorCode) -> None:
    heard.append((offset, error))


def test_all_before_the_high_watermark_are_told_in_order() -> None:
    heard: list[tuple[int, ErrorCode]] = []
    under_test = waits(heard, 3, 5, 5, 9)
    under_test.reached(2, ErrorCode.NONE)
    assert heard == [] and under_test
    under_test.reached(5, ErrorCode.NONE)
    assert heard == [(3, ErrorCode.NONE), (5, ErrorCode.NONE), (5, ErrorCode.NONE)]
    under_test.reached(9, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert heard[-1] == (9, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) and not under_test


def test_a_failure_is_told_to_everybody_once() -> None:
    heard: list[tuple[int, ErrorCode]] = []
    under_test = waits(heard, 3, 5)
    under_test.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    under_test.fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    under_test.reached(9, ErrorCode.NONE)
    assert heard == [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_one_that_waits_anew_from_within_is_kept() -> None:
    under_test = CommitWaits()
    heard: list[ErrorCode] = []
    under_test.add(1, lambda error: under_test.add(4, heard.append))
    under_test.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert under_test and heard == []
    under_test.reached(4, ErrorCode.NONE)
    assert heard == [ErrorCode.NONE]


def test_waits_out_of_order_are_a_bug_of_ours() -> None:
    with pytest.raises(AssertionError):
        waits([], 5, 4)
