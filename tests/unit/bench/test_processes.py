"""The memory of a process is its own, not that of the process that started it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.processes import peak_memory_mb

SIZE = 200 << 20


@pytest.mark.processes
def test_the_peak_of_a_process_leaves_out_that_of_its_parent() -> None:
    held = b"x" * SIZE

    program = "from bench.processes import peak_memory_mb; print(peak_memory_mb())"
    of_child = float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)

    assert peak_memory_mb() > len(held) / 1e6 > of_child
