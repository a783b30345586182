"""The broker boots and serves on a deterministic loop: one seed, one run; and power cuts lose nothing acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.single_node import run

ROOT = Path(__file__).parents[2]


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    program = [sys.executable, "-m", "tests.simulation.single_node", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.split()[0]


def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    here = run(1)[0].digest()
    assert run(1)[0].digest() == here
    assert [digest_elsewhere(1, hash_seed) for hash_seed in ("0", "random")] == [here] * 2


def test_seeds_differ() -> None:
    assert len({run(seed, count=3, cuts=0)[0].digest() for seed in range(3)}) == 3


@pytest.mark.parametrize("seed", range(20))
def test_no_power_cut_loses_an_acknowledged_record(seed: int) -> None:
    _, history = run(seed)
    assert history.cuts == 2
    assert history.problems() == []


def test_without_a_sync_for_each_acknowledgement_a_power_cut_does_lose_some() -> None:
    """So the check above can fail."""
    assert any(run(seed, flush_messages="1000000")[1].problems() for seed in range(20))


@pytest.mark.parametrize("failing_sync", range(1, 60, 2))
def test_a_failed_sync_stops_the_node_and_loses_nothing_acknowledged(failing_sync: int) -> None:
    """Not even when the process starts again over the same page cache, and the power is cut after that."""
    _, history = run(failing_sync, count=10, cuts=1, failing_sync=failing_sync)
    assert history.problems() == []
