"""The small measurements of bench/micro/ still find the parts that they put together: each runs one short round."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHORT = {
    "fetch_path": "measured.ROUNDS, measured.ROUND_FETCHES = 1, 1",
    "produce_path": "measured.ROUNDS, measured.ROUND_REQUESTS = 1, 200",
    "remote_segments": "measured.SEGMENTS, measured.PARTITIONS, measured.LOOKUPS = 2_000, 2, 10",
    "transaction_path": "measured.ROUNDS, measured.ROUND_TRANSACTIONS = 1, 20",
    "replicated_path": "measured.ROUNDS, measured.LOADS = 1, {'short': (1, 1, 200, 10)}",
}
"""What makes the rounds of each short."""


@pytest.mark.processes
@pytest.mark.parametrize("name", sorted(SHORT))
def test_a_small_measurement_runs(name: str) -> None:
    program = f"import {name} as measured; {SHORT[name]}; measured.main()"
    path = f"import sys; sys.path[:0] = [{str(ROOT / 'bench' / 'micro')!r}]; "
    done = subprocess.run(
        [sys.executable, "-c", path + program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert " us " in done.stdout
