"""DescribeTransactions and ListTransactions: what readers are told of committed states."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from moldau.coordinator.transaction.shard import TransactionDescription
from moldau.coordinator.transaction.transaction import unknown_states
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import WALL_MS
from tests.support.transaction_stage import TIMEOUT_MS, A, B, TransactionStage


def stage_with_some() -> TransactionStage:
    """`idle` is empty, `old` and `young` are ongoing, `done` is committed."""
    stage = TransactionStage()
    for tid in ("idle", "old", "young", "done"):
        stage.init(tid=tid, timeout_ms=100_000)
    stage.add(1_001, 0, B, A, tid="old")
    stage.wait(50_000)
    stage.add(1_002, 0, A, tid="young")
    stage.add(1_003, 0, A, tid="done")
    stage.end(1_003, 0, commits=True, tid="done")
    stage.write_markers()
    stage.wait(10_000)
    return stage


def test_descriptions() -> None:
    stage = stage_with_some()
    assert stage.describe("old") == TransactionDescription("Ongoing", 100_000, WALL_MS, 1_001, 0, (A, B))
    assert stage.describe("idle") == TransactionDescription("Empty", 100_000, -1, 1_000, 0, ())
    assert stage.describe("done") == TransactionDescription("CompleteCommit", 100_000, WALL_MS + 50_000, 1_003, 1, ())
    assert stage.shard.describe("absent") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert stage.shard.describe("") is ErrorCode.INVALID_REQUEST


def test_readers_see_what_is_committed() -> None:
    stage = TransactionStage()
    stage.is_held = True
    stage.init()
    assert stage.state() == "Dead"
    stage.release()
    stage.is_held = True
    stage.add(1_000, 0, A)
    assert stage.describe() == TransactionDescription("Empty", TIMEOUT_MS, -1, 1_000, 0, ())


@pytest.mark.parametrize(
    ("states", "producer_ids", "duration_ms", "names"),
    [
        ((), (), -1, {"idle", "old", "young", "done"}),
        (("Ongoing",), (), -1, {"old", "young"}),
        (("Ongoing", "Empty", "none"), (), -1, {"idle", "old", "young"}),
        (("none",), (), -1, set()),
        (("ongoing",), (), -1, set()),
        ((), (1_003, 7), -1, {"done"}),
        (("Ongoing",), (1_003,), -1, set()),
        ((), (), 10_000, {"idle", "old"}),
        ((), (), 9_999, {"idle", "old", "young", "done"}),
        (("Ongoing",), (), 59_999, {"old"}),
        (("Ongoing",), (), 60_000, set()),
    ],
)
def test_filters(states: Collection[str], producer_ids: Collection[int], duration_ms: int, names: set[str]) -> None:
    stage = stage_with_some()
    listed = filter(None, stage.shard.list_transactions(states, producer_ids, duration_ms, stage.wall_ms))
    assert {each.transactional_id for each in listed} == names


def test_a_listed_transaction() -> None:
    stage = stage_with_some()
    (listed,) = filter(None, stage.shard.list_transactions((), (1_003,), -1, stage.wall_ms))
    assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == ("done", 1_003, "CompleteCommit")


def test_states_that_do_not_exist_are_named() -> None:
    assert unknown_states(["Ongoing", "none", "Dead", "ongoing", "PrepareEpochFence"]) == ["none", "ongoing"]
