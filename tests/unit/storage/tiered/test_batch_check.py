"""The check of a segment's batches: sound ones give the indexes that the log wrote, and every changed byte is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import HEADER_SIZE, INT32, INT64
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.segment.batch_scan import DamagedBatch
from moldau.storage.segment.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from moldau.storage.tiered.batch_check import SegmentBatchCheck, offset_index_problem, time_index_problem
from tests.unit.storage.tiered.remote_partition import SMALL, written_log

INDEX_SIZE_MAX = SMALL.segment_index_bytes
FIRST = 40
EPOCH_POSITION = 12
EPOCH_AND_BASE_OFFSET = {*range(8), *range(EPOCH_POSITION, EPOCH_POSITION + INT32.size)}


def check_of(data: bytes, base_offset: int, end_offset: int, piece_size: int = 1 << 20) -> SegmentBatchCheck:
    check = SegmentBatchCheck(base_offset, end_offset, len(data), SMALL.index_interval_bytes, INDEX_SIZE_MAX)
    for position in range(0, len(data), piece_size):
        check.add_piece(data[position : position + piece_size])
    check.check_complete()
    return check


def three_batches() -> list[bytes]:
    """Of offsets 40 and 41, 42 and 43, 44 and 45, with two leader epochs and a timestamp each."""
    return [
        bytes(
            build_batch(
                [Record(value=b"a", timestamp=1000 + number), Record(value=b"b", timestamp=1000 + number)],
                base_offset=FIRST + 2 * number,
                partition_leader_epoch=3 + number // 2,
            )
        )
        for number in range(3)
    ]


@pytest.mark.parametrize("piece_size", [61, 1000, 4096, 1 << 20])
def test_sound_batches_give_the_indexes_of_the_log(tmp_path: Path, piece_size: int) -> None:
    log = written_log(tmp_path)
    for segment, later in zip(log.segments, log.segments[1:], strict=False):
        data = segment.slice(0, segment.size).read()
        check = check_of(data, segment.base_offset, later.base_offset, piece_size)
        assert check.offset_index == log.fs.read(segment.path(".index"))
        assert check.time_index == log.fs.read(segment.path(".timeindex"))
        assert check.crc == crc32c(data, 0)
        assert check.max_timestamp == segment.largest_timestamp()
        assert (check.position, check.next_offset) == (len(data), later.base_offset)


def test_a_changed_byte_anywhere_is_found_at_its_batch() -> None:
    batches = three_batches()
    data = b"".join(batches)
    check_of(data, FIRST, FIRST + 6)
    for position in range(len(data)):
        number, inside = divmod(position, len(batches[0]))
        if inside in EPOCH_AND_BASE_OFFSET:
            continue  # not covered by the checksum
        changed = bytearray(data)
        changed[position] ^= 1 << Random(position).randrange(8)
        with pytest.raises(DamagedBatch) as caught:
            check_of(bytes(changed), FIRST, FIRST + 6, 100)
        assert caught.value.position == number * len(batches[0])


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("offset", [0, FIRST - 1, FIRST + 6, 1 << 40, -1])
def test_offsets_out_of_order_or_outside_of_the_segment_are_damage(number: int, offset: int) -> None:
    batches = three_batches()
    batches[number] = INT64.pack(offset) + batches[number][8:]
    with pytest.raises(DamagedBatch, match=f"{number * len(batches[0])}$"):
        check_of(b"".join(batches), FIRST, FIRST + 6)


def test_a_batch_that_reaches_past_the_segment_is_damage() -> None:
    with pytest.raises(DamagedBatch, match="offset 45 in a segment that ends before 45"):
        check_of(b"".join(three_batches()), FIRST, FIRST + 5)


@pytest.mark.parametrize("cut_size", [1, 20, HEADER_SIZE + 1])
def test_a_segment_that_ends_inside_of_a_batch_is_damage(cut_size: int) -> None:
    data = b"".join(three_batches())[:-cut_size]
    with pytest.raises(DamagedBatch):
        check_of(data, FIRST, FIRST + 6)


def test_a_gap_that_cleaning_left_and_a_segment_without_bytes_are_sound() -> None:
    first, _, third = three_batches()
    assert check_of(first + third, FIRST, FIRST + 9).max_timestamp == 1002
    empty = check_of(b"", FIRST, FIRST + 9)
    assert (empty.offset_index, empty.time_index, empty.max_timestamp, empty.crc) == (b"", b"", -1, 0)


def test_the_indexes_keep_to_their_limit() -> None:
    data = b"".join(
        bytes(build_batch([Record(value=b"a", timestamp=number)], base_offset=number)) for number in range(1000)
    )
    check = SegmentBatchCheck(0, 1000, len(data), 0, 1200)
    check.add_piece(data)
    check.check_complete()
    assert 400 < len(check.offset_index) <= 1200 and 400 < len(check.time_index) <= 1200 + 12


OUTSIDE, DISORDER = "an entry is outside of the segment", "the entries are out of order"


def test_the_indexes_of_a_log_are_in_order(tmp_path: Path) -> None:
    log = written_log(tmp_path)
    for segment, later in zip(log.segments, log.segments[1:], strict=False):
        delta = later.base_offset - 1 - segment.base_offset
        assert offset_index_problem(bytes(log.fs.read(segment.path(".index"))), delta, segment.size) is None
        assert time_index_problem(bytes(log.fs.read(segment.path(".timeindex"))), delta) is None
    assert offset_index_problem(b"", 9, 100) is None and time_index_problem(b"", 9) is None


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1, 10), (4, 20), (9, 99)], None),
        ([(1, 10), (4, 10), (9, 99)], None),
        ([(1, 10), (8, 20), (7, 30), (9, 99)], DISORDER),
        ([(1, 10), (4, 60), (5, 50), (9, 99)], DISORDER),
        ([(1, 10), (1, 20)], DISORDER),
        ([(1, 10), (4, 20), (0, 0)], DISORDER),
        ([(0, 0), (4, 20)], OUTSIDE),
        ([(-1, 10), (4, 20)], OUTSIDE),
        ([(1, 10), (10, 20)], OUTSIDE),
        ([(1, 10), (9, 100)], OUTSIDE),
    ],
)
def test_an_offset_index(entries: list[tuple[int, int]], problem: str | None) -> None:
    data = b"".join(OFFSET_ENTRY.pack(*each) for each in entries)
    assert offset_index_problem(data, 9, 100) == problem
    assert offset_index_problem(data + b"x", 9, 100) == f"{len(data) + 1} bytes are not whole entries"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1000, 1), (2000, 1), (3000, 9)], None),
        ([(1000, 1), (3000, 4), (2000, 9)], DISORDER),
        ([(1000, 1), (2000, 8), (3000, 7)], DISORDER),
        ([(1000, 1), (1000, 2)], DISORDER),
        ([(-1, 1), (1000, 2)], OUTSIDE),
        ([(1000, -1), (2000, 2)], OUTSIDE),
        ([(1000, 1), (2000, 10)], OUTSIDE),
    ],
)
def test_a_time_index(entries: list[tuple[int, int]], problem: str | None) -> None:
    data = b"".join(TIME_ENTRY.pack(*each) for each in entries)
    assert time_index_problem(data, 9) == problem
    assert time_index_problem(data + b"x", 9) == f"{len(data) + 1} bytes are not whole entries"
