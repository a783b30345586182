"""The quantile of a histogram, as Prometheus computes it."""

from __future__ import annotations

import pytest

from bench.request_latency import BUCKET, ComparedLatency, quantile


def test_a_quantile_is_on_the_line_between_two_bounds() -> None:
    buckets = {1.0: 0, 2.0: 90, 4.0: 100, float("inf"): 100}
    assert quantile(buckets, 0.95) == pytest.approx(3.0)
    assert quantile(buckets, 0.45) == pytest.approx(1.5)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile({1.0: 10, float("inf"): 100}, 0.99) == 1.0


def test_the_buckets_of_a_page_are_found() -> None:
    page = 'kafka_network_requestmetrics_totaltimems_bucket{request="Produce",le="+Inf"} 7\n'
    assert BUCKET.findall(page) == [("+Inf", "7")]


def test_a_difference_has_no_sign() -> None:
    assert ComparedLatency(2.0, 1.9).difference_percent == pytest.approx(5)
