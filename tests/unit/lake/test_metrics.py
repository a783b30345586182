"""The metrics of a follower as Prometheus reads them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.lake.follower import FollowProgress
from moldau.lake.metrics import METRICS, FollowerMetrics, metrics_text


def test_each_metric_has_its_type_and_the_lag_is_in_offsets_and_seconds() -> None:
    progress = FollowProgress({0: 7}, {0: 10, 1: 2}, rows_count=7, caught_up_ms=1_000, committed_ms=2_000)
    lines = metrics_text([FollowerMetrics(progress, "d.t", "t")], 31_500).splitlines()
    assert 'moldau_table_lag_offsets{table="d.t",topic="t",partition="0"} 3' in lines
    assert 'moldau_table_lag_offsets{table="d.t",topic="t",partition="1"} 2' in lines
    assert 'moldau_table_next_offset{table="d.t",topic="t",partition="0"} 7' in lines
    assert 'moldau_table_lag_seconds{table="d.t",topic="t"} 30.5' in lines
    assert 'moldau_table_last_commit_seconds{table="d.t",topic="t"} 2.0' in lines
    for name, kind, described in METRICS:
        assert f"# TYPE {name} {kind}" in lines and f"# HELP {name} {described}" in lines


def test_a_table_that_has_all_is_not_behind() -> None:
    text = metrics_text([FollowerMetrics(FollowProgress({0: 7}, {0: 7}, caught_up_ms=0), "d.t", "t")], 99_000)
    assert 'moldau_table_lag_seconds{table="d.t",topic="t"} 0\n' in text


def test_the_metrics_of_several_tables_are_one_family_each() -> None:
    failed = FollowProgress({0: 1}, {0: 1}, is_followed=False)
    lines = metrics_text(
        [FollowerMetrics(FollowProgress(), "d.t", "t"), FollowerMetrics(failed, "d.u", "u")], 0
    ).splitlines()
    assert lines.count("# TYPE moldau_table_is_followed gauge") == 1
    assert lines[-2:] == [
        'moldau_table_is_followed{table="d.t",topic="t"} 1',
        'moldau_table_is_followed{table="d.u",topic="u"} 0',
    ]
