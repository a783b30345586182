"""Where a group lives is fixed by Java's hash of its name."""

from __future__ import annotations

import pytest

from moldau.broker.coordinators.shards import REMEMBERED_LENGTH_MAX, java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hash_code", "partition"),
    [("my-group", -1906497762, 12), ("test", 3556498, 48), ("txn-1", 110810510, 10), ("", 0, 0), ("old", 110119, 19)],
)
def test_names_hash_as_in_java(text: str, hash_code: int, partition: int) -> None:
    assert java_hash(text) == hash_code
    assert partition_of(text, 50) == partition


def test_characters_outside_of_the_basic_plane_count_as_two_units() -> None:
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_the_one_hash_without_an_absolute_value_is_partition_0() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_of("polygenelubricants", 50) == 0


@pytest.mark.parametrize("length", [REMEMBERED_LENGTH_MAX, REMEMBERED_LENGTH_MAX + 1])
def test_long_names_hash_as_short_ones_do(length: int) -> None:
    expected = 0
    for _ in range(length):
        expected = (31 * expected + ord("x")) & 0xFFFFFFFF
    expected -= (expected >> 31) << 32
    assert [java_hash("x" * length), java_hash("x" * length)] == [expected, expected]
