"""Throttle times of the last minute."""

from __future__ import annotations

from moldau.security.quotas.throttling import ThrottleTimes


def test_throttle_times_are_of_the_last_minute() -> None:
    times = ThrottleTimes()
    times.record(10, 1000)
    times.record(30, 31_000)
    assert (times.mean(40_000), times.longest(40_000)) == (20, 30)
    assert (times.mean(62_000), times.longest(62_000)) == (30, 30)
    assert (times.mean(200_000), times.longest(200_000)) == (0, 0)
