"""How much a trigger reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.spark_jobs.streams.reader import TriggerDelay, admitted_ends
from moldau.tables.options.option_values import TriggerLimits

BEGINS = {("t", 0): 0, ("t", 1): 100, ("u", 0): 7}


def test_what_is_there_is_read_where_it_is_less_than_the_limit() -> None:
    ends = {("t", 0): 10, ("t", 1): 110, ("u", 0): 7}
    assert admitted_ends(BEGINS, ends, 20) == ends


def test_the_limit_is_shared_out_by_lag() -> None:
    ends = {("t", 0): 900, ("t", 1): 200, ("u", 0): 7}
    assert admitted_ends(BEGINS, ends, 100) == {("t", 0): 90, ("t", 1): 110, ("u", 0): 7}


def test_no_partition_starves() -> None:
    ends = {("t", 0): 1_000_000, ("t", 1): 101, ("u", 0): 7}
    assert admitted_ends(BEGINS, ends, 10) == {("t", 0): 9, ("t", 1): 101, ("u", 0): 7}


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5), st.integers(1, 500))
def test_triggers_reach_the_end(lags: list[int], offsets_max: int) -> None:
    ends = {("t", number): lag for number, lag in enumerate(lags)}
    begins = dict.fromkeys(ends, 0)
    triggers = 0
    while begins != ends:
        following = admitted_ends(begins, ends, offsets_max)
        assert all(begins[key] <= following[key] <= ends[key] for key in ends)
        assert sum(following.values()) - sum(begins.values()) <= offsets_max + len(ends)
        begins = following
        triggers += 1
        assert triggers <= sum(lags)


def test_a_trigger_waits_for_enough_or_for_long_enough() -> None:
    patience = TriggerDelay(TriggerLimits(offsets_min=10, delay_ms_max=1000))
    assert not patience.must_wait(1, 0), "the first one does not wait"
    assert patience.must_wait(9, 500)
    assert not patience.must_wait(10, 600)
    assert patience.must_wait(9, 1600)
    assert not patience.must_wait(9, 1601)
    assert patience.must_wait(9, 1602)
