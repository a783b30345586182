"""Which records `moldau erase --verify` counts as left."""

from __future__ import annotations

from moldau.broker.cli.daily.erasure.verifying import _left_of
from moldau.protocol.erase_orders import Run
from moldau.protocol.record_builder import Record


def test_a_run_of_any_length_takes_no_memory() -> None:
    """A receipt is a file, which may have been edited."""
    orders = [{"offset": 50, "runs": [[7, 10**12], [3, 3]]}, {"offset": 60, "runs": [[5, 6]]}]
    is_left, runs = _left_of(orders, None, 100)
    assert runs == [Run(3, 3), Run(5, 10**12)]
    offsets = (2, 3, 4, 5, 7, 10**11, 10**12, 10**12 + 1)
    assert [is_left(Record(offset=offset)) for offset in offsets] == [False, True, False, True, True, True, True, False]


def test_records_that_pass_the_filters_count_up_to_the_last_order() -> None:
    is_left, _ = _left_of([{"offset": 50, "runs": [[7, 7]]}], lambda record: record.key == b"k", 100)
    assert [is_left(Record(b"k", offset=offset)) for offset in (7, 49, 50)] == [True, True, False]
    assert not is_left(Record(b"other", offset=8))
