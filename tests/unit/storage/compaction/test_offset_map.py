"""The offset map against a dictionary, also where every slot is needed and where probes meet."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.compaction.offset_map import ENTRY_SIZE, NOT_FOUND, OffsetMap

SALT = bytes(range(32))


@settings(max_examples=200)
@given(
    st.lists(st.binary(max_size=3) | st.binary(max_size=300), max_size=60),
    st.integers(min_value=2, max_value=80),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.binary(min_size=32, max_size=32),
)
def test_it_answers_as_a_dictionary(keys: list[bytes], slots: int, load_factor: float, salt: bytes) -> None:
    offsets = OffsetMap(slots * ENTRY_SIZE, load_factor, salt)
    known: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        if offsets.is_full:
            break
        offsets.put(key, offset)
        known[key] = offset
        assert offsets.count == len(known) and offsets.latest_offset == offset
    assert all(offsets.get(key) == known.get(key, NOT_FOUND) for key in keys)
    assert offsets.get(b"never put") == NOT_FOUND and 1 <= offsets.count_max < slots


def test_the_capacity_is_that_of_24_bytes_a_key() -> None:
    assert OffsetMap(128 << 20, 0.9, SALT).count_max == int((128 << 20) // 24 * 0.9)


def test_many_keys_fill_it_to_the_load_factor() -> None:
    offsets = OffsetMap(24 * 5000, 0.9, os.urandom(32))
    for number in range(offsets.count_max):
        offsets.put(b"key %d" % number, number * 7)
    assert offsets.is_full and offsets.utilization == 0.9
    assert all(offsets.get(b"key %d" % number) == number * 7 for number in range(offsets.count_max))


def test_it_reaches_further_than_its_keys() -> None:
    offsets = OffsetMap(240, 0.9, SALT)
    offsets.put(b"a", 5)
    offsets.reach(9)
    offsets.reach(7)
    assert offsets.latest_offset == 9 and offsets.get(b"a") == 5


def test_it_needs_room() -> None:
    with pytest.raises(AssertionError):
        OffsetMap(24, 0.9, SALT)
