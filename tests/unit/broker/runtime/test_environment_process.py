"""The process itself, of which the test's is one."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

from moldau.broker.runtime.environment import Process


def test_the_kernel_says_how_large_and_how_busy_the_process_is(tmp_path: Path) -> None:
    process = Process(lambda: 0)
    before = process.read()
    assert before is not None
    with (tmp_path / "a").open("w"):
        during = process.read()
    assert during is not None and during.open_fds == before.open_fds + 1 <= before.fds_max
    assert during.cpu_s >= before.cpu_s > 0
    assert 1 << 20 < during.resident_bytes < 1 << 36


def test_collections_of_garbage_are_told_between_start_and_stop() -> None:
    ticks = itertools.count(0, 1_000_000_000)
    process = Process(lambda: next(ticks))
    told: list[tuple[int, float]] = []
    process.start(lambda generation, pause_s: told.append((generation, pause_s)))
    gc.collect()
    process.stop()
    process.stop()
    gc.collect()
    assert (2, 1.0) in told and sum(generation == 2 for generation, _ in told) == 1
