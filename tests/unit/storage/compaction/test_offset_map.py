"""The offset map against a dictionary and the decoder of records, in Python and in C."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import decode_run, records_of
from tests.unit.storage.compaction.runs import compiled_form, encoded, forms, plain_form, runs

pytestmark = pytest.mark.slow

SALT = bytes(range(32))
CONSTANTS = (
    "ENTRY_SIZE",
    "FATES_MAX",
    "LATEST",
    "LATEST_TOMBSTONE",
    "NOT_FOUND",
    "NOT_NOTED",
    "SALT_SIZE",
    "SUPERSEDED",
)


@pytest.fixture(params=forms(), ids=lambda form: "python" if form is plain_form() else "c")
def form(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def in_each_form(test: Callable[[ModuleType], None]) -> None:
    for each in forms():
        test(each)


# The map


@settings(max_examples=200)
@given(
    st.lists(st.binary(max_size=3) | st.binary(max_size=300), max_size=60),
    st.integers(min_value=2, max_value=80),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.binary(min_size=32, max_size=32),
)
def test_it_answers_as_a_dictionary(keys: list[bytes], slots: int, load_factor: float, salt: bytes) -> None:
    def check(form: ModuleType) -> None:
        offsets = form.OffsetMap(slots * form.ENTRY_SIZE, load_factor, salt)
        known: dict[bytes, int] = {}
        for offset, key in enumerate(keys):
            if offsets.is_full:
                break
            offsets.put(key, offset)
            known[key] = offset
            assert offsets.count == len(known) and offsets.latest_offset == offset
        assert all(offsets.get(key) == known.get(key, form.NOT_FOUND) for key in keys)
        assert offsets.get(b"never put") == form.NOT_FOUND and 1 <= offsets.count_max < slots

    in_each_form(check)


def test_the_capacity_is_that_of_24_bytes_a_key(form: ModuleType) -> None:
    assert form.OffsetMap(128 << 20, 0.9, SALT).count_max == int((128 << 20) // 24 * 0.9)


def test_many_keys_fill_it_to_the_load_factor(form: ModuleType) -> None:
    offsets = form.OffsetMap(24 * 5000, 0.9, os.urandom(32))
    for number in range(offsets.count_max):
        offsets.put(b"key %d" % number, number * 7)
    assert offsets.is_full and offsets.count == 4500
    assert all(offsets.get(b"key %d" % number) == number * 7 for number in range(offsets.count_max))


def test_it_reaches_further_than_its_keys(form: ModuleType) -> None:
    offsets = form.OffsetMap(240, 0.9, SALT)
    offsets.put(b"a", 5)
    offsets.raise_latest_offset(9)
    offsets.raise_latest_offset(7)
    assert offsets.latest_offset == 9 and offsets.get(b"a") == 5


def test_it_needs_room_and_a_salt(form: ModuleType) -> None:
    with pytest.raises(AssertionError):
        form.OffsetMap(24, 0.9, SALT)
    with pytest.raises(AssertionError):
        form.OffsetMap(240, 0.9, SALT[1:])


# The fates


def test_the_fate_of_a_batch_is_that_of_all_its_records(form: ModuleType) -> None:
    offsets = form.OffsetMap(2400, 0.9, SALT, 10, 5)
    for offset, key in enumerate([b"a", b"b", b"a", b"b", b"c", b"d"], 10):
        offsets.put(key, offset)
    assert offsets.fate(10, 2) == form.SUPERSEDED and offsets.fate(12, 3) == form.LATEST
    for first, count in ((11, 2), (9, 1), (14, 2), (15, 1), (10, 0), (10, -1), (-1 << 62, 1), (1 << 62, 1 << 62)):
        assert offsets.fate(first, count) == form.NOT_NOTED
    offsets.put(b"c", 16, True)
    assert offsets.fate(14, 1) == form.SUPERSEDED and offsets.fate(16, 1) == form.NOT_NOTED


def test_records_without_a_value_and_without_a_key_have_fates_of_their_own(form: ModuleType) -> None:
    _, run = encoded([Record(b"a", b"1"), Record(b"b", None), Record(None, b"1")], 0)
    offsets = form.OffsetMap(2400, 0.9, SALT, 0, 3)
    offsets.index_run(run, 3, 0, 0)
    assert [offsets.fate(each, 1) for each in range(3)] == [form.LATEST, form.LATEST_TOMBSTONE, form.NOT_NOTED]


def test_no_fate_is_known_where_offsets_do_not_ascend(form: ModuleType) -> None:
    offsets = form.OffsetMap(2400, 0.9, SALT, 0, 5)
    offsets.put(b"a", 3)
    assert offsets.fate(3, 1) == form.LATEST
    offsets.put(b"b", 2)
    assert offsets.fate(3, 1) == form.NOT_NOTED and offsets.fate(2, 1) == form.NOT_NOTED


# Keys of rows


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([b"", b"a", b"b", b"c" * 30]) | st.binary(max_size=9), st.integers(0, 5)))
    ),
    st.booleans(),
    st.integers(min_value=2, max_value=80),
)
def test_rows_stay_whose_keys_have_no_later_offset(
    chunks: list[list[tuple[bytes, int]]], takes_keys: bool, slots: int
) -> None:
    def check(form: ModuleType) -> None:
        offsets = form.OffsetMap(slots * form.ENTRY_SIZE, 0.9, SALT)
        known = {}
        if chunks and chunks[0]:
            offsets.put(*chunks[0][0])
            known = dict(chunks[0][:1])
        for rows in chunks:
            wanted, has_room = [1 - number % 3 // 2 for number in range(len(rows))], True
            is_chosen = bytearray(wanted)
            for number, (key, offset) in reversed(list(enumerate(rows))):
                if wanted[number] and known.get(key, form.NOT_FOUND) >= offset:
                    wanted[number] = 0
                elif wanted[number] and (key in known or (takes_keys and len(known) < offsets.count_max)):
                    known[key] = offset
                elif wanted[number]:
                    has_room = has_room and not takes_keys
            ends = array("i", accumulate((len(key) for key, _ in rows), initial=0))
            numbers = array("q", [offset for _, offset in rows])
            joined = b"".join(key for key, _ in rows)
            assert offsets.choose_keys(ends, joined, numbers, is_chosen, takes_keys) is has_room
            assert list(is_chosen) == wanted
        assert offsets.count == len(known) and all(offsets.get(key) == offset for key, offset in known.items())

    in_each_form(check)


@pytest.mark.parametrize("ends", [[0, 1], [0, 2, 1], [0, 1, 4], [-1, 0, 1]])
def test_keys_that_do_not_fit_their_bytes_are_an_error_of_the_caller(form: ModuleType, ends: list[int]) -> None:
    with pytest.raises(AssertionError):
        form.OffsetMap(240, 0.9, SALT).choose_keys(array("i", ends), b"abc", array("q", [1, 2]), bytearray(2), True)


# Records


@given(runs, st.integers(min_value=0, max_value=12))
def test_the_latest_offset_of_each_key_is_noted(chosen: list[Record], start: int) -> None:
    batch, run = encoded(chosen, 100)
    latest = {
        each.key: each.offset for each in records_of(batch) if each.key is not None and each.offset >= 100 + start
    }

    def check(form: ModuleType) -> None:
        offsets = form.OffsetMap(2400, 0.9, SALT)
        assert offsets.index_run(run, len(chosen), 100, 100 + start) == len(chosen)
        assert offsets.count == len(latest) and all(offsets.get(key) == offset for key, offset in latest.items())

    in_each_form(check)


def test_a_full_map_ends_the_walk(form: ModuleType) -> None:
    _, run = encoded([Record(b"a"), Record(b"a"), Record(None), Record(b"b"), Record(b"a")], 0)
    for records in (run, run + b"\xff"):  # what lies behind is not read
        offsets = form.OffsetMap(48, 0.9, SALT)
        assert offsets.index_run(records, 6, 0, 0) == 1 and offsets.latest_offset == 0


@given(runs, st.booleans(), st.integers(min_value=99, max_value=112), st.sampled_from([0, 4, 100]))
def test_what_is_kept_is_what_the_rules_say(
    chosen: list[Record], keeps_tombstones: bool, latest_offset: int, fates: int
) -> None:
    batch, run = encoded(chosen, 100)
    stored = list(records_of(batch))

    def check(form: ModuleType) -> None:
        offsets = form.OffsetMap(2400, 0.9, SALT, 100, fates)
        known: dict[bytes, int] = {}
        for each in stored:
            if each.key is not None and each.offset <= latest_offset:
                offsets.put(each.key, each.offset, each.value is None)
                known[each.key] = each.offset
        offsets.raise_latest_offset(latest_offset)
        expected = [
            each
            for each in stored
            if each.offset > offsets.latest_offset
            or (
                each.key is not None
                and each.offset >= known.get(each.key, -1)
                and (keeps_tombstones or each.value is not None)
            )
        ]
        body, count, largest, has_tombstones, without_key = offsets.select_run(run, len(chosen), 100, keeps_tombstones)
        assert count == len(expected)
        assert list(decode_run(bytes(body), count, parse_header(batch))) == expected
        assert has_tombstones is any(each.value is None for each in expected)
        assert without_key == sum(each.key is None and each.offset <= offsets.latest_offset for each in stored)
        if expected:
            assert largest + chosen[0].timestamp == max(each.timestamp for each in expected)

    in_each_form(check)


# Damage


def outcome(form: ModuleType, run: bytes, count: int, base_offset: int, slots: int) -> list[object]:
    """What both loops make of a run: results, or the text of the error."""
    offsets = form.OffsetMap(24 * slots, 0.9, SALT, 5, 8)
    found: list[object] = []
    loops: list[Callable[[], object]] = [
        lambda: offsets.index_run(memoryview(run), count, base_offset, 5),
        lambda: offsets.select_run(memoryview(run), count, base_offset, True),
        lambda: form.OffsetMap(240, 0.9, SALT).select_run(run, count, base_offset, False),
    ]
    for loop in loops:
        try:
            result = loop()
        except MalformedMessage as problem:
            found.append(str(problem))
            break  # a map is not used any more after an error
        found.append((bytes(result[0]), *result[1:]) if isinstance(result, tuple) else result)
        found += [offsets.count, offsets.latest_offset, *(offsets.fate(each, 1) for each in range(14))]
    return found


@settings(max_examples=400)
@given(runs, st.data(), st.sampled_from([2, 3, 100]))
def test_both_forms_make_the_same_of_damaged_records(chosen: list[Record], data: st.DataObject, slots: int) -> None:
    """Results or errors: never an index error, a read past the end or an endless walk."""
    _, run = encoded(chosen, 0)
    damaged = bytearray(run)
    for place in data.draw(st.lists(st.integers(min_value=0, max_value=len(run) - 1), min_size=1, max_size=3)):
        damaged[place] = data.draw(st.integers(min_value=0, max_value=255))
    cut = data.draw(st.integers(min_value=0, max_value=len(run)))
    for broken in (bytes(damaged), run[:cut], bytes(damaged[cut:])):
        assert len({str(outcome(form, broken, len(chosen), 3, slots)) for form in forms()}) == 1


@settings(max_examples=400)
@given(st.binary(max_size=80), st.integers(min_value=0, max_value=40))
def test_both_forms_make_the_same_of_any_bytes(run: bytes, count: int) -> None:
    assert len({str(outcome(form, run, count, 3, 3)) for form in forms()}) == 1


def test_bytes_behind_the_records_are_refused(form: ModuleType) -> None:
    _, run = encoded([Record(b"a", b"1")], 0)
    with pytest.raises(MalformedMessage, match="1 bytes after the 1 records"):
        form.OffsetMap(2400, 0.9, SALT).index_run(run + b"\x00", 1, 0, 0)


def test_both_forms_have_the_same_names_and_constants() -> None:
    compiled = compiled_form()
    if compiled is None:
        pytest.skip("this machine has no C compiler")
    plain = plain_form()
    assert [getattr(compiled, name) for name in CONSTANTS] == [getattr(plain, name) for name in CONSTANTS]
    public = {name for name in dir(plain.OffsetMap) if not name.startswith("_")}
    assert public == {name for name in dir(compiled.OffsetMap) if not name.startswith("_")}
