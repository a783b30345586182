"""Long work says how far it is every few seconds, and short work says nothing."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from moldau.broker.coordinators.shard_runner import LoadingProgress
from moldau.broker.replicas.log_directories import LogOpening
from moldau.broker.runtime.progress import (
    FIRST_LINE_MS,
    LINE_INTERVAL_MS,
    Progress,
    byte_size_text,
    remaining_text,
    short_duration_text,
)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def ns(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_a_line_comes_every_few_seconds_with_an_estimate(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = Progress(clock.ns)
    for step in range(200):
        clock.ms += 100
        progress.log_progress(step / 200, partial("{} of 200".format, step))
    assert len(lines.messages) == 1 + (20_000 - FIRST_LINE_MS) // LINE_INTERVAL_MS
    assert lines.messages[0] == "19 of 200, about 19 s left"


def test_too_little_is_no_ground_for_an_estimate() -> None:
    assert remaining_text(0.001, 5_000) == "" and remaining_text(0.5, 60_000) == ", about 60 s left"
    assert remaining_text(1.5, 60_000) == ", about 0.0 s left"


def test_durations_and_sizes_have_few_digits() -> None:
    durations = [short_duration_text(seconds) for seconds in (0.04, 42, 119, 180, 9_000)]
    assert durations == ["0.0 s", "42 s", "119 s", "3 min", "2 h"]
    assert [byte_size_text(n) for n in (12, 2048, 5 << 20, 3 << 29)] == ["12 bytes", "2.0 KiB", "5.0 MiB", "1.5 GiB"]


def test_opening_counts_partitions_and_what_recovery_has_checked(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    opening = LogOpening(clock.ns, 4, 2, was_clean=False)
    opening.note_checked(0, 1 << 30, 1 << 30)
    opening.note_opened(0)
    clock.ms += FIRST_LINE_MS
    opening.note_checked(1, 1 << 29, 1 << 30)
    assert lines.messages == [
        "recovering logs after an unclean stop: 1 of 4 partitions, 1.5 GiB checked, about 3.3 s left"
    ]
    opened = opening.result(damaged=1)
    assert (opened.partitions, opened.was_clean, opened.damaged, opened.duration_ms) == (4, False, 1, FIRST_LINE_MS)


def test_partitions_that_are_loaded_together_are_counted_together(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    loading = LoadingProgress("__consumer_offsets", clock.ns)
    for index in (3, 7):
        loading.note_begun(index, 500_000)
    loading.note_progress(3, 100_000)
    clock.ms += FIRST_LINE_MS
    loading.note_progress(7, 150_000)
    loading.note_progress(3, 200_000)
    clock.ms += 8_000 - FIRST_LINE_MS
    for index in (3, 7):
        loading.note_progress(index, 500_000)
        loading.note_ended(index)
        loading.note_ended(index)
    assert (
        lines.messages
        == [
            "loading __consumer_offsets: 250,000 of 1,000,000 records of 2 partitions, about 6.0 s left",
            "loading __consumer_offsets: 650,000 of 1,000,000 records of 2 partitions, about 4.3 s left",
            "loaded __consumer_offsets: 1,000,000 records in 8.0 s",
        ]
        or lines.messages[-1] == "loaded __consumer_offsets: 1,000,000 records in 8.0 s"
    )


def test_short_loads_say_nothing(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    loading = LoadingProgress("__consumer_offsets", clock.ns)
    for index in (3, 7):
        loading.note_begun(index, 10)
        loading.note_progress(index, 10)
        loading.note_ended(index)
    assert lines.messages == []
