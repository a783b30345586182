"""The metrics of a follower as Prometheus reads them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake.follower import FollowProgress
from moldau.lake.metrics import METRICS, metrics_text


def test_each_metric_has_its_type_and_the_lag_is_in_offsets_and_seconds() -> None:
    progress = FollowProgress({0: 7}, {0: 10, 1: 2}, rows_count=7, caught_up_ms=1_000, committed_ms=2_000)
    lines = metrics_text(progress, "d.t", "t", 31_500).splitlines()
    assert 'moldau_table_lag_offsets{table="d.t",topic="t",partition="0"} 3' in lines
    assert 'moldau_table_lag_offsets{table="d.t",topic="t",partition="1"} 2' in lines
    assert 'moldau_table_next_offset{table="d.t",topic="t",partition="0"} 7' in lines
    assert 'moldau_table_lag_seconds{table="d.t",topic="t"} 30.5' in lines
    assert 'moldau_table_last_commit_seconds{table="d.t",topic="t"} 2.0' in lines
    for name, kind, described in METRICS:
        assert f"# TYPE {name} {kind}" in lines and f"# HELP {name} {described}" in lines


def test_a_table_that_has_all_is_not_behind() -> None:
    text = metrics_text(FollowProgress({0: 7}, {0: 7}, caught_up_ms=0), "d.t", "t", 99_000)
    assert 'moldau_table_lag_seconds{table="d.t",topic="t"} 0\n' in text
