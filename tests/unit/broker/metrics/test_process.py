"""Metrics of the process itself, of which the test's is one."""

from __future__ import annotations

import gc
import itertools

import pytest

from moldau.broker.metrics.exposition import Page
from moldau.broker.metrics.process import ProcessMetrics
from moldau.broker.runtime.environment import Process


def test_collections_of_garbage_are_timed_between_start_and_stop() -> None:
    ticks = itertools.count(0, 1_000_000_000)
    metrics = ProcessMetrics(Process(lambda: next(ticks)))
    metrics.start()
    gc.collect()
    metrics.stop()
    metrics.stop()
    gc.collect()
    assert metrics.pauses_s[2].count == 1
    assert metrics.pauses_s[2].sum == pytest.approx(1)
    page = Page()
    metrics.collect(page, metrics.read())
    text = page.text()
    assert 'moldau_gc_pause_seconds_count{generation="2"} 1' in text
