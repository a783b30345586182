"""The inner loops against the decoder of records, and against damaged bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.primitives import MalformedMessage
from protocol.record_batch import HEADER_SIZE, parse_header
from protocol.record_builder import NEXT_OFFSET, Record, build_batch
from protocol.record_reader import decode_run, records_of
from storage.compaction.offset_map import OffsetMap
from storage.compaction.record_loop import Selection, index_run, select_run, shifted

SALT = bytes(range(32))
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 200])
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
records = st.builds(
    Record,
    key=keys,
    value=st.none() | st.binary(max_size=5) | st.just(b"v" * 300),
    timestamp=st.integers(min_value=0, max_value=1 << 41),
    headers=headers,
    offset=st.just(NEXT_OFFSET),
)
runs = st.lists(records, min_size=1, max_size=12)


def encoded(chosen: list[Record], base_offset: int) -> tuple[bytes, bytes]:
    """A batch, and its records alone."""
    batch = build_batch(chosen, base_offset=base_offset)
    return batch, batch[HEADER_SIZE:]


@given(runs, st.integers(min_value=0, max_value=12))
def test_the_latest_offset_of_each_key_is_noted(chosen: list[Record], start: int) -> None:
    batch, run = encoded(chosen, 100)
    offsets = OffsetMap(2400, 0.9, SALT)
    assert index_run(run, len(chosen), 100, 100 + start, offsets) == len(chosen)
    latest = {
        each.key: each.offset for each in records_of(batch) if each.key is not None and each.offset >= 100 + start
    }
    assert offsets.count == len(latest) and all(offsets.get(key) == offset for key, offset in latest.items())


def test_a_full_map_ends_the_walk() -> None:
    _, run = encoded([Record(b"a"), Record(b"a"), Record(None), Record(b"b"), Record(b"a")], 0)
    offsets = OffsetMap(48, 0.9, SALT)
    assert index_run(run, 5, 0, 0, offsets) == 1 and offsets.latest_offset == 0


@given(runs, st.booleans(), st.integers(min_value=99, max_value=112))
def test_what_is_kept_is_what_the_rules_say(chosen: list[Record], keeps_tombstones: bool, latest_offset: int) -> None:
    batch, run = encoded(chosen, 100)
    offsets = OffsetMap(2400, 0.9, SALT)
    stored = list(records_of(batch))
    known: dict[bytes, int] = {}
    for each in stored:
        if each.key is not None and each.offset <= latest_offset:
            offsets.put(each.key, each.offset)
            known[each.key] = each.offset
    offsets.reach(latest_offset)
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
    selection = Selection()
    select_run(run, len(chosen), 100, keeps_tombstones, offsets, selection)
    body = b"".join(run[start:end] for start, end in selection.spans)
    assert selection.kept_count == len(expected)
    assert list(decode_run(body, selection.kept_count, parse_header(batch))) == expected
    assert selection.has_tombstones == any(each.value is None for each in expected)
    if expected:
        base_timestamp = chosen[0].timestamp
        assert selection.max_timestamp_delta + base_timestamp == max(each.timestamp for each in expected)


@given(runs, st.integers(min_value=-(1 << 42), max_value=1 << 42))
def test_shifting_changes_the_timestamps_alone(chosen: list[Record], shift: int) -> None:
    batch, run = encoded(chosen, 7)
    moved = list(decode_run(shifted(run, shift), len(chosen), parse_header(batch)))
    assert moved == [each._replace(timestamp=each.timestamp + shift) for each in records_of(batch)]


@given(runs, st.data())
def test_damaged_records_are_refused_or_read_as_others(chosen: list[Record], data: st.DataObject) -> None:
    """Never an index error, a read past the end or an endless walk."""
    _, run = encoded(chosen, 0)
    damaged = bytearray(run)
    place = data.draw(st.integers(min_value=0, max_value=len(run) - 1))
    damaged[place] = data.draw(st.integers(min_value=0, max_value=255))
    cut = data.draw(st.integers(min_value=0, max_value=len(run)))
    for broken in (bytes(damaged), run[:cut]):
        for walk in (
            lambda bytes_: index_run(bytes_, len(chosen), 0, 0, OffsetMap(2400, 0.9, SALT)),
            lambda bytes_: select_run(bytes_, len(chosen), 0, True, OffsetMap(2400, 0.9, SALT), Selection()),
        ):
            try:
                walk(broken)
            except MalformedMessage:
                pass
            else:
                assert broken == bytes(damaged) or len(broken) == len(run)


def test_bytes_behind_the_records_are_refused() -> None:
    _, run = encoded([Record(b"a", b"1")], 0)
    with pytest.raises(MalformedMessage):
        index_run(run + b"\x00", 1, 0, 0, OffsetMap(2400, 0.9, SALT))
