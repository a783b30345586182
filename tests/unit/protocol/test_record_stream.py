"""Batches that are walked in pieces: the same verdicts as in one go, and memory that does not grow with them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.compression import PIECE_SIZE_MAX, Codec, DecompressedSizeExceeded, RecordSizeExceeded, compress
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    OFFSETS_DIFFER,
    largest_record,
    parse_header,
    walk_records,
    whole_records,
)
from moldau.protocol.record_builder import Record, append_record, assemble, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.record_stream import record_runs, walk_batch

MIB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def walked(batch: bytes, *, size_max: int = 100 * MIB, record_size_max: int = 16 * MIB) -> tuple[int, int, int]:
    return walk_batch(batch, parse_header(batch), size_max=size_max, record_size_max=record_size_max)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_many_pieces_is_walked_as_in_one_go(codec: Codec) -> None:
    records = [Record(b"k%d" % i, b"v" * (i % 300), 1000 + i * 7 % 500) for i in range(5000)]
    batch = build_batch(records, codec=codec)
    plain = build_batch(records)
    assert len(plain) > 2 * PIECE_SIZE_MAX
    assert walked(batch) == walk_records(plain, HEADER_SIZE, len(plain), 5000)
    assert [record.value for record in records_of(batch)] == [record.value for record in records]


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    missing=st.integers(-2, 2),
    tail=st.binary(max_size=3),
)
def test_runs_of_any_pieces_hold_every_byte_and_every_record(
    sizes: list[int], cuts: list[int], missing: int, tail: bytes
) -> None:
    body = bytearray()
    for index, size in enumerate(sizes):
        append_record(body, Record(None, bytes(size)), 0, index)
    body += tail
    pieces: list[bytes] = []
    rest = bytes(body)
    while rest:
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(rest[:size])
        rest = rest[size:]
    count = max(len(sizes) + missing, 0)
    try:
        expected: object = walk_records(bytes(body), 0, len(body), count)
    except MalformedMessage:
        expected = MalformedMessage
    try:
        found: object = together(pieces, count)
    except MalformedMessage:
        found = MalformedMessage
    assert found == expected


def together(pieces: list[bytes], count: int) -> tuple[int, int, int]:
    flags, low, high, first = 0, (1 << 63) - 1, -(1 << 63), 0
    for run, found in record_runs(pieces, count, MIB):
        if found <= 0:
            raise MalformedMessage(f"{len(run)} bytes after the records")
        result = walk_records(run, 0, len(run), found, first)
        flags, low, high, first = flags | result[0], min(low, result[1]), max(high, result[2]), first + found
    return flags, low, high


def test_offsets_go_on_from_run_to_run() -> None:
    body = bytearray()
    for offset in (0, 1, 1):
        append_record(body, Record(None, b"v"), 0, offset)
    assert walk_records(bytes(body), 0, len(body), 3)[0] & OFFSETS_DIFFER
    (first, count), *rest = record_runs([bytes(body[:10]), bytes(body[10:])], 3, 100)
    assert walk_records(first, 0, len(first), count)[0] & OFFSETS_DIFFER == 0
    assert any(walk_records(run, 0, len(run), found, count)[0] & OFFSETS_DIFFER for run, found in rest)


def test_whole_records_are_counted_and_the_next_one_is_measured() -> None:
    body = bytearray()
    for size in (3, 200):
        append_record(body, Record(None, bytes(size)), 0, 0)
    assert whole_records(bytes(body), 5) == (2, len(body), 0)
    assert whole_records(bytes(body[:-1]), 5) == (1, 10, len(body) - 10)
    assert whole_records(bytes(body[:11]), 5) == (1, 10, 0)
    assert whole_records(bytes(body), 1) == (1, 10, 0)
    with pytest.raises(MalformedMessage):
        whole_records(b"\x01", 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_expands_to_a_hundred_megabytes_takes_a_few(codec: Codec) -> None:
    size = 20 if codec is Codec.SNAPPY else 90
    body = bytearray()
    for index in range(size):
        append_record(body, Record(None, bytes(MIB)), 0, index)
    stored = compress(codec, body)
    batch = assemble((stored,), 0, -1, codec, size - 1, 0, 0, -1, -1, -1, size)
    del body
    tracemalloc.start()
    flags, _, _ = walked(batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not flags & OFFSETS_DIFFER
    assert peak < 8 * MIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_expands_without_end_is_refused_at_its_bound(codec: Codec) -> None:
    stored = compress(codec, bytes(12 * MIB))
    batch = assemble((stored,), 0, -1, codec, 0, 0, 0, -1, -1, -1, 1)
    with pytest.raises(MalformedMessage):
        walked(batch)
    record = bytearray()
    append_record(record, Record(None, bytes(12 * MIB)), 0, 0)
    batch = assemble((compress(codec, record),), 0, -1, codec, 0, 0, 0, -1, -1, -1, 1)
    assert walked(batch)[0] & OFFSETS_DIFFER == 0
    with pytest.raises(DecompressedSizeExceeded):
        walked(batch, size_max=8 * MIB)
    with pytest.raises(RecordSizeExceeded):
        walked(batch, record_size_max=8 * MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [100, 100_000])
def test_the_bound_on_a_record_is_kept_to_the_byte_wherever_the_record_lies(codec: Codec, size: int) -> None:
    """Between records of 10 bytes, in one piece with them and over several."""
    body = bytearray()
    for index in range(5):
        append_record(body, Record(None, bytes(size if index == 3 else 3)), 0, index)
    record_size = largest_record(bytes(body), 5)
    assert size < record_size < size + 16
    batch = assemble((compress(codec, body),), 0, -1, codec, 4, 0, 0, -1, -1, -1, 5)
    assert walked(batch, record_size_max=record_size) == walk_records(bytes(body), 0, len(body), 5)
    with pytest.raises(RecordSizeExceeded):
        walked(batch, record_size_max=record_size - 1)
    assert len(list(records_of(batch, record_size_max=record_size))) == 5
    with pytest.raises(RecordSizeExceeded):
        list(records_of(batch, record_size_max=record_size - 1))
