"""Consumers that wait are answered soon, and the rule flags those that are not."""

from __future__ import annotations

import pytest

from moldau.broker.apis.records import fetch
from moldau.broker.purgatory.purgatory import LOW_WATERMARK
from moldau.replication.source import FetchIsolation
from tests.simulation.cluster.waiting import run_seed
from tests.simulation.invariants.observation import Violation


def test_consumers_are_answered_soon() -> None:
    answers = [each.answers for seed in range(2) for each in run_seed(seed).consumers]
    assert sum(answers) > 50, answers


def test_a_fetch_that_is_woken_late_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetch.AWAITED, FetchIsolation.TXN_COMMITTED, LOW_WATERMARK)
    with pytest.raises(Violation, match="a read_committed fetch"):
        run_seed(0)
