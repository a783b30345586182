"""The batch of an erase order, and what is refused."""

from __future__ import annotations

import pytest

from moldau.protocol.control_records import control_record_type, end_transaction_marker
from moldau.protocol.erase_orders import (
    RUNS_MAX,
    EraseOrder,
    Run,
    erase_order_batch,
    new_erase_order,
    problem_of_order,
    read_erase_order,
    read_sent_order,
    runs_within,
)
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of

HASH = b"h" * 32


def order(*runs: tuple[int, int], predicate_hash: bytes = HASH) -> EraseOrder:
    return new_erase_order(bytes(range(16)), predicate_hash, [Run(*each) for each in runs])


def test_an_order_is_read_as_it_was_written() -> None:
    written = order((1, 2), (5, 9))
    batch = erase_order_batch(written, 1000)
    assert read_erase_order(batch) == read_sent_order(batch) == written


def test_the_runs_within_a_segment_are_cut_at_its_bounds() -> None:
    named = order((1, 2), (5, 9), (12, 12))
    assert runs_within(named, 0, 13) == [Run(1, 2), Run(5, 9), Run(12, 12)]
    assert runs_within(named, 2, 6) == [Run(2, 2), Run(5, 5)]
    assert runs_within(named, 6, 8) == [Run(6, 7)]
    assert runs_within(named, 3, 5) == runs_within(named, 13, 20) == []


def test_the_batch_is_a_control_batch_without_a_producer() -> None:
    batch = erase_order_batch(order((1, 2)), 1000)
    header = parse_header(batch)
    assert (header.is_control, header.is_transactional, header.producer_id, header.records_count) == (
        True,
        False,
        -1,
        1,
    )
    (record,) = records_of(batch)
    assert record.key is not None
    assert record.key.hex() == "00000064"
    assert control_record_type(record.key) is None  # unknown to every other reader
    assert record.value is not None
    assert (
        record.value.hex()
        == (
            "0000"  # version
            "000102030405060708090a0b0c0d0e0f"  # order id
            "ffffffffffffffff"  # asked at
            "01"  # principal ""
            "21" + HASH.hex() + "02"  # one run
            "0000000000000001" + "0000000000000002" + "00" + "00"
        )
    )


def test_other_batches_are_no_orders() -> None:
    marker = end_transaction_marker(commits=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0)
    assert read_erase_order(marker) is None
    assert read_erase_order(build_batch([Record(b"k", b"v")])) is None
    assert read_sent_order(build_batch([Record(b"k", b"v")], is_control=True)) == "clients write no control records"


def test_a_damaged_batch_is_told() -> None:
    batch = bytearray(erase_order_batch(order((1, 2)), 1000))
    batch[-3] ^= 1
    assert "valid checksum" in str(read_sent_order(batch))
    assert "valid checksum" in str(read_sent_order(bytes(batch) + b"x"))
    assert isinstance(read_sent_order(b"short"), str)


def test_an_order_of_a_later_version_is_told() -> None:
    later = order((1, 2))
    later.version = 7
    assert read_sent_order(erase_order_batch(later, 0)) == "an erase order of version 7, this release knows 0"


@pytest.mark.parametrize(
    ("runs", "flaw"),
    [
        ([], "names no offsets"),
        ([(3, 2)], "ends before it begins"),
        ([(-1, 2)], "below 0"),
        ([(1, 2), (2, 3)], "overlap"),
        ([(5, 6), (1, 2)], "ascending"),
        ([(1, 10)], "offset 10 is at or past the high watermark 10"),
        ([(2 * each, 2 * each) for each in range(RUNS_MAX + 1)], "above the limit"),
    ],
)
def test_runs_that_are_refused(runs: list[tuple[int, int]], flaw: str) -> None:
    found = problem_of_order(order(*runs), 10)
    assert found is not None
    assert flaw in found


def test_a_hash_of_another_size_is_refused() -> None:
    assert "instead of 32" in str(problem_of_order(order((1, 2), predicate_hash=b"x"), 10))
    assert problem_of_order(order((1, 2), (3, 9)), 10) is None
