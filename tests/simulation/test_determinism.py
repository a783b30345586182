"""One seed in, the same run out: in any process, with any hash seed, as often as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.journal_cluster import Mistake, run

ROOT = Path(__file__).parents[2]


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    """Of a process of its own."""
    program = [sys.executable, "-m", "tests.simulation.journal_cluster", str(seed), "4"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.split()[0]


def test_every_process_sees_the_same_run() -> None:
    here = run(7, faults=4)[0].digest()
    assert [digest_elsewhere(7, hash_seed) for hash_seed in ("0", "1", "random")] == [here] * 3


def test_a_planted_mistake_does_not_make_it_less_deterministic() -> None:
    first, lost_first = run(3, mistake=Mistake.CONCURRENT_SYNCS, keep_trace=True)
    second, lost_second = run(3, mistake=Mistake.CONCURRENT_SYNCS, keep_trace=True)
    assert first.trace.lines == second.trace.lines
    assert lost_first == lost_second
    assert first.digest() == second.digest()


def test_keeping_the_trace_changes_nothing() -> None:
    assert run(5, faults=2, keep_trace=True)[0].digest() == run(5, faults=2)[0].digest()


def test_seeds_differ() -> None:
    digests = [run(seed, faults=1)[0].digest() for seed in range(5)]
    assert len(set(digests)) == 5


def test_a_correct_journal_loses_nothing() -> None:
    assert [lost for seed in range(10) for lost in run(seed, faults=6)[1]] == []


@pytest.mark.parametrize("mistake", list(Mistake))
def test_every_planted_mistake_is_found(mistake: Mistake) -> None:
    assert any(run(seed, mistake=mistake)[1] for seed in range(60))
