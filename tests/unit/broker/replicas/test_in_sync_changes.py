"""Proposals to the controller: which answer ends one, which is asked again, and which changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import AlterPartitionResponse
from tests.support.in_sync_stage import Stage
from tests.support.node import batch


def test_one_that_has_caught_up_joins_when_the_controller_confirms() -> None:
    stage = Stage()
    stage.fetch(3, 0)
    assert stage.wishes() == [([1, 2, 3], 7)] and len(stage.partition.isr) == 2
    stage.answer(ErrorCode.NONE, (1, 2, 3), 8)
    assert len(stage.partition.isr) == 3 and stage.proposed is None
    assert stage.changes.expand_count == 1
    assert stage.changes.shrink_count == 0


def test_a_fenced_broker_and_a_former_incarnation_are_not_proposed() -> None:
    stage = Stage()
    stage.fetch(3, 0, broker_epoch=8)
    stage.brokers[3].is_active = False
    stage.fetch(3, 0)
    assert stage.asked == []


def test_one_that_need_not_ask_again_joins_when_what_kept_it_out_is_over() -> None:
    """Nothing is written, so its fetch session has no news of the partition: it asks for it once."""
    stage = Stage(isr=(1,))
    stage.fetch(2, 0)
    stage.fetch(3, 0)
    assert stage.wishes() == [([1, 2], 7)], "one change at a time"
    stage.answer(ErrorCode.NONE, (1, 2), 8)
    assert stage.wishes() == [([1, 2], 7), ([1, 2, 3], 8)]

    fenced = Stage()
    fenced.brokers[3].is_active = False
    fenced.fetch(3, 0)
    fenced.changes.on_brokers_changed()
    assert fenced.asked == []
    fenced.brokers[3].is_active = True
    fenced.changes.on_brokers_changed()
    assert fenced.wishes() == [([1, 2, 3], 7)]


def test_one_whose_directory_failed_is_not_let_in_by_what_is_remembered_of_it() -> None:
    stage = Stage()
    stage.lost.add(b"3")
    stage.fetch(3, 0)
    stage.changes.on_brokers_changed()
    assert stage.asked == []


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_the_controller_did_not_do_is_forgotten(error: ErrorCode) -> None:
    stage = Stage()
    stage.fetch(3, 0)
    stage.answer(error)
    assert stage.proposed is None and stage.later == []


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_newer_epoch_at_the_controller_may_be_this_very_change(error: ErrorCode) -> None:
    """The answer was lost, and the request sent again: 3 may be a member. Commits wait for it until metadata tells."""
    stage = Stage()
    stage.fetch(3, 0)
    stage.partition.append(batch("a"), 1, 0, 9)
    stage.answer(error)
    stage.fetch(2, 1)
    assert stage.proposed == (1, 2, 3) and stage.partition.high_watermark == 0
    stage.partition.become_leader(1, 5, (1, 2, 3), replicas=(1, 2, 3), partition_epoch=8)
    assert stage.partition.high_watermark == 0
    stage.fetch(3, 1)
    assert stage.partition.high_watermark == 1


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_no_decision_is_asked_for_again(error: ErrorCode) -> None:
    stage = Stage()
    stage.fetch(3, 0)
    stage.asked[-1][1](AlterPartitionResponse(error_code=error))
    assert stage.proposed == (1, 2, 3)
    stage.later.pop()()
    assert stage.wishes() == [([1, 2, 3], 7)] * 2


def test_what_metadata_has_overtaken_is_not_asked_again() -> None:
    """2 was fenced and removed meanwhile: the old wish, sent with the new epoch, would bring it back unseen."""
    stage = Stage()
    stage.fetch(3, 0)
    stage.partition.become_leader(1, 5, (1,), replicas=(1, 2, 3), partition_epoch=8)
    stage.asked[-1][1](AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert stage.later == []
    stage.fetch(3, 0)
    assert stage.wishes()[-1] == ([1, 3], 8)


def test_the_answer_to_an_old_proposal_does_not_end_a_new_one() -> None:
    stage = Stage()
    stage.fetch(3, 0)
    stage.partition.become_leader(1, 5, (1,), replicas=(1, 2, 3), partition_epoch=8)
    stage.fetch(3, 0)
    assert stage.proposed == (1, 3)
    stage.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert stage.proposed == (1, 3) and stage.wishes()[-1] == ([1, 3], 8)


def test_a_lost_leadership_ends_a_proposal_whatever_the_answer() -> None:
    stage = Stage()
    stage.fetch(3, 0)
    stage.partition.become_follower(2, 6, 8)
    stage.answer(ErrorCode.NONE, (1, 2, 3), 8)
    assert stage.partition.isr == () and stage.later == []


def test_laggards_are_asked_to_leave() -> None:
    stage = Stage()
    stage.partition.append(batch("a"), 1, 0, 9)
    cast("Any", stage.changes._environment).monotonic_ms = lambda: 30_001
    asyncio.run(stage.changes._shrink())
    assert stage.wishes() == [([1], 7)]
    stage.answer(ErrorCode.NONE, (1,), 8)
    assert stage.partition.isr == (1,) and stage.changes.shrink_count == 1


def test_commits_wait_for_one_about_to_join_until_it_is_fenced() -> None:
    stage = Stage((1,))
    stage.partition.propose_in_sync_set((1,))  # a change is under way: nobody can be proposed now
    stage.fetch(3, 0)
    stage.partition.append(batch("a"), 1, 0, 9)
    assert stage.partition.high_watermark == 0
    stage.brokers[3].is_active = False
    stage.changes.on_brokers_changed()
    assert stage.partition.high_watermark == 1
