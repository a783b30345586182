"""The kernel for Arrow against the decoder of records, and its form in C against the one in Python."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, parse_header
from moldau.protocol.record_builder import NEXT_OFFSET, Record, build_batch
from moldau.protocol.record_reader import records_of
from tests.support.modules_in_c import compiled_form, forms_of, plain_form

MODULE = "protocol.record_spans"
EVERYTHING = (0, 1 << 62)
records = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20) | st.just(b"k" * 200),
        value=st.none() | st.binary(max_size=20) | st.just(b"v" * 70_000),
        timestamp=st.integers(0, 1 << 41),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
        offset=st.just(NEXT_OFFSET),
    ),
    min_size=1,
    max_size=12,
)


class Columns(NamedTuple):
    offsets: list[int]
    timestamps: list[int]
    headers: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


@pytest.fixture(params=forms_of(MODULE), ids=lambda form: "python" if form is plain_form(MODULE) else "c")
def form(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def read(
    form: ModuleType, batches: list[bytes], wanted: tuple[int, int] = EVERYTHING, is_kept: bytes | None = None
) -> Columns:
    """The columns of these batches, in one chunk; only those of the records for which `is_kept` has no 0."""
    headers = [parse_header(batch) for batch in batches]
    capacity = sum(header.records_count for header in headers)
    numbers = [array("q", bytes(8 * capacity)) for _ in range(3)]
    spans = form.RecordSpans(capacity, *wanted, form.KEYS | form.VALUES, *numbers)
    for batch, header in zip(batches, headers, strict=True):
        spans.read(
            batch,
            HEADER_SIZE,
            len(batch),
            header.records_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            False,
        )
    if is_kept is not None:
        spans.keep(is_kept)
    offsets, times, places = (list(each)[: spans.count] for each in numbers)
    return Columns(offsets, times, places, fields(spans, form.KEYS), fields(spans, form.VALUES))


def fields(spans: object, name: int) -> list[bytes | None]:
    size, nulls_count = spans.needs(name)  # type: ignore[attr-defined]
    count: int = spans.count  # type: ignore[attr-defined]
    ends, data, validity = array("i", bytes(4 * (count + 1))), bytearray(size), bytearray(b"\xff" * ((count + 7) // 8))
    spans.copy(name, ends, data, validity)  # type: ignore[attr-defined]
    assert ends[0] == 0
    assert ends[count] == size
    shown = [
        bytes(data[ends[row] : ends[row + 1]]) if validity[row // 8] >> row % 8 & 1 else None for row in range(count)
    ]
    assert shown.count(None) == nulls_count
    assert not validity or validity[-1] >> ((count - 1) % 8 + 1) == 0
    return shown


def outcome(form: ModuleType, batches: list[bytes], wanted: tuple[int, int] = EVERYTHING) -> Columns | str:
    try:
        return read(form, batches, wanted)
    except MalformedMessage as malformed:
        return str(malformed)


@settings(deadline=None)
@given(records, records, st.integers(0, 20), st.integers(0, 30))
def test_it_reads_what_the_decoder_of_records_reads(
    first: list[Record], second: list[Record], start: int, end: int
) -> None:
    batches = [build_batch(first, base_offset=3), build_batch(second, base_offset=3 + len(first))]
    expected = [record for batch in batches for record in records_of(batch) if start <= record.offset < end]
    for form in forms_of(MODULE):
        columns = read(form, batches, (start, end))
        assert columns.offsets == [record.offset for record in expected]
        assert columns.timestamps == [1000 * record.timestamp for record in expected]
        assert columns.keys == [record.key for record in expected]
        assert columns.values == [record.value for record in expected]
        assert [each == form.NO_HEADERS for each in columns.headers] == [not record.headers for record in expected]


@settings(deadline=None)
@given(records, st.data())
def test_records_that_are_kept_are_those_of_all_columns(found: list[Record], data: st.DataObject) -> None:
    is_kept = data.draw(st.lists(st.integers(0, 2), min_size=len(found), max_size=len(found)))
    batch = build_batch(found, base_offset=3)
    rows = [row for row, keeps in enumerate(is_kept) if keeps]
    every = read(plain_form(MODULE), [batch])
    for form in forms_of(MODULE):
        kept = read(form, [batch], is_kept=bytes(is_kept))
        assert kept.offsets == [every.offsets[row] for row in rows]
        assert kept.timestamps == [every.timestamps[row] for row in rows]
        assert kept.headers == [every.headers[row] for row in rows]
        assert kept.keys == [every.keys[row] for row in rows]
        assert kept.values == [every.values[row] for row in rows]


def test_each_record_has_a_byte_that_says_whether_it_is_kept(form: ModuleType) -> None:
    with pytest.raises(AssertionError):
        read(form, [build_batch([Record(b"k", b"v")])], is_kept=b"\1\1")


@settings(deadline=None)
@given(records, st.data())
def test_damaged_records_give_the_same_in_both_forms(chosen: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(chosen, base_offset=3))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, min(60, len(batch) - HEADER_SIZE - 1)))
        batch[HEADER_SIZE + place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(HEADER_SIZE, len(batch)))
    for damaged in (bytes(batch), bytes(batch[:cut])):
        assert len({str(outcome(form, [damaged])) for form in forms_of(MODULE)}) == 1


def test_the_append_time_of_a_batch_is_that_of_its_records(form: ModuleType) -> None:
    batch = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)])
    offsets, times = array("q", [0, 0]), array("q", [0, 0])
    spans = form.RecordSpans(2, *EVERYTHING, 0, offsets, times, None)
    spans.read(batch, HEADER_SIZE, len(batch), 2, 0, 1, 77, True)
    assert list(times) == [77_000, 77_000]


@pytest.mark.parametrize("count", [-1, 1, 3, 1 << 40])
def test_a_count_that_does_not_fill_the_batch_is_refused(form: ModuleType, count: int) -> None:
    batch = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)])
    spans = form.RecordSpans(8, *EVERYTHING, 0, array("q", bytes(64)), None, None)
    with pytest.raises(MalformedMessage):
        spans.read(batch, HEADER_SIZE, len(batch), count, 0, 1, 0, False)


def test_the_caller_gives_the_room(form: ModuleType) -> None:
    batch = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)])
    spans = form.RecordSpans(1, *EVERYTHING, 0, array("q", bytes(8)), None, None)
    with pytest.raises(AssertionError):
        spans.read(batch, HEADER_SIZE, len(batch), 2, 0, 1, 0, False)


def test_the_form_in_c_checks_what_it_is_given() -> None:
    """Each of these would write or read past a buffer."""
    form = compiled_form(MODULE)
    if form is None:
        pytest.skip("this machine has no C compiler")
    batch = build_batch([Record(b"k", b"v", 5), Record(None, b"v", 9)])
    with pytest.raises(AssertionError):
        form.RecordSpans(2, *EVERYTHING, 0, array("q", bytes(8)), None, None)
    spans = form.RecordSpans(2, *EVERYTHING, form.KEYS, array("q", bytes(16)), None, None)
    with pytest.raises(AssertionError):
        spans.read(batch, HEADER_SIZE, len(batch) + 1, 2, 0, 1, 0, False)
    spans.read(batch, HEADER_SIZE, len(batch), 2, 0, 1, 0, False)
    ends, data, validity = array("i", bytes(12)), bytearray(1), bytearray(1)
    wrong = [(array("i", bytes(8)), data, validity), (ends, bytearray(0), validity), (ends, data, None)]
    for each in [*wrong, (ends, data, bytearray(0))]:
        with pytest.raises(AssertionError):
            spans.copy(form.KEYS, *each)
    with pytest.raises(AssertionError):
        spans.needs(form.VALUES)
    spans.copy(form.KEYS, ends, data, validity)
    assert (list(ends), bytes(data), validity[0]) == ([0, 1, 1], b"k", 1)


def test_a_size_that_the_end_of_the_batch_cuts_is_past_the_batch(form: ModuleType) -> None:
    spans = form.RecordSpans(1, *EVERYTHING, 0, array("q", [0]), None, None)
    with pytest.raises(MalformedMessage, match="a record goes past the end of its batch"):
        spans.read(b"\x80", 0, 1, 1, 0, 0, 0, False)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("past", [0, 1, (1 << 63) - 1 - (1 << 63) // 1000])
def test_a_time_that_microseconds_do_not_hold_is_the_nearest_one_that_they_do(
    form: ModuleType, sign: int, past: int
) -> None:
    last = (1 << 63) // 1000
    batches = [build_batch([Record(b"k", b"v", time)]) for time in (5, sign * (last + past))]
    assert read(form, batches).timestamps == [5000, sign * last * 1000]


def test_the_sum_of_a_base_and_a_delta_wraps_as_in_java(form: ModuleType) -> None:
    """A producer computes the delta of two times that are far apart in the same 64 bits."""
    batch = build_batch([Record(b"k", b"v", 0), Record(b"k", b"v", (1 << 63) - 1)])
    times = array("q", [0, 0])
    spans = form.RecordSpans(2, *EVERYTHING, 0, array("q", [0, 0]), times, None)
    spans.read(batch, HEADER_SIZE, len(batch), 2, 0, 1, 1 << 62, False)
    assert list(times) == [(1 << 63) // 1000 * 1000, -((1 << 63) // 1000) * 1000]
