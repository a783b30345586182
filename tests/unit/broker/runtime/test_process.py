"""The process itself, of which the test's is one."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import pytest

from broker.metrics.exposition import Page
from broker.runtime.process import Process


def test_the_kernel_says_how_large_and_how_busy_the_process_is(tmp_path: Path) -> None:
    process = Process(lambda: 0)
    before = process.read()
    assert before is not None
    with (tmp_path / "a").open("w"):
        during = process.read()
    assert during is not None and during.open_fds == before.open_fds + 1 <= before.fds_max
    assert during.cpu_s >= before.cpu_s > 0
    assert 1 << 20 < during.resident_bytes < 1 << 36


def test_collections_of_garbage_are_timed_between_start_and_stop() -> None:
    ticks = itertools.count(0, 1_000_000_000)
    process = Process(lambda: next(ticks))
    process.start()
    gc.collect()
    process.stop()
    process.stop()
    gc.collect()
    assert process.pauses_s[2].count == 1
    assert process.pauses_s[2].sum == pytest.approx(1)
    page = Page()
    process.collect(page, process.read())
    text = page.text()
    assert 'moldau_gc_pause_seconds_count{generation="2"} 1' in text
    assert f'moldau_build_info{{version="{process.version}",kafka="4.3.1"' in text
