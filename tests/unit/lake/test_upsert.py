"""The last record of each key, over batches and partitions, and the files that have one of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

import moldau
from moldau.lake import stored_rows, upsert
from moldau.lake.keys import NO_KEYS, ChangedKeys
from moldau.lake.upsert import KeyChanges, MatchedKeys, match_changed_keys, rows_that_stay
from moldau.protocol.record_builder import Record
from tests.support.lake_stage import START_MS, LakeStage, framed


def rows(found: Sequence[tuple[bytes, int, int, int]]) -> pa.RecordBatch:
    """Rows of (key, partition, offset, timestamp)."""
    columns = [list(each) for each in zip(*found, strict=True)] or [[], [], [], []]
    types = (pa.binary(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "partition", "offset", "timestamp"])


def kept_all(batch: pa.RecordBatch, *, deletes: bool = False) -> pa.Array:
    return pa.array([deletes] * len(batch), pa.bool_())


def keys_of(*keys: bytes) -> ChangedKeys:
    return ChangedKeys.of(pa.Table.from_batches([rows([(each, 0, 9, START_MS) for each in keys])]))


def kept(*batches: pa.RecordBatch) -> set[tuple[bytes, int, int]]:
    changes = KeyChanges()
    for each in batches:
        changes.add(each, kept_all(each))
    return {(row["key"], row["partition"], row["offset"]) for row in changes.rows_and_keys()[0].to_pylist()}


def test_in_a_partition_the_highest_offset_counts_whatever_its_time() -> None:
    first, second = rows([(b"a", 0, 1, 900), (b"b", 0, 2, 1)]), rows([(b"a", 0, 3, 100)])
    assert kept(first, second) == {(b"a", 0, 3), (b"b", 0, 2)}


def test_between_partitions_the_latest_time_counts_then_the_higher_partition() -> None:
    assert kept(rows([(b"a", 0, 9, 5), (b"a", 1, 0, 6)])) == {(b"a", 1, 0)}
    assert kept(rows([(b"a", 1, 0, 5)]), rows([(b"a", 0, 9, 5)])) == {(b"a", 1, 0)}
    assert kept(rows([(b"a", 2, 0, 5), (b"a", 0, 1, 7), (b"a", 0, 9, 6)])) == {(b"a", 0, 9)}


def test_a_key_that_is_deleted_has_no_row_until_it_is_written_again() -> None:
    changes = KeyChanges()
    first, second = rows([(b"a", 0, 1, 1), (b"b", 0, 4, 1)]), rows([(b"a", 0, 2, 1), (b"b", 0, 3, 1), (b"c", 0, 5, 1)])
    changes.add(first, kept_all(first))
    changes.add(second, kept_all(second, deletes=True))
    found, keys = changes.rows_and_keys()
    assert found["offset"].to_pylist() == [4] and sorted(keys.key_identities.to_pylist()) == [b"a", b"b", b"c"]
    assert found.column_names == ["key", "partition", "offset", "timestamp"]


def test_replaced_records_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "FILE_SIZE_MAX", 4_000)
    changes = KeyChanges()
    for offset in range(0, 20_000, 100):
        batch = rows([(b"key-%d" % (each % 7), 0, offset + each, 1) for each in range(100)])
        changes.add(batch, kept_all(batch))
        assert sum(each.nbytes for each in changes._kept) < 20_000
    assert sorted(changes.rows_and_keys()[0]["offset"].to_pylist()) == [19_993 + each for each in range(7)]


CHANGE = st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 2) | st.just(99), st.integers(0, 3))
"""The key, the partition and the time of a change. Its offset is its position: a round has each once."""


@given(st.lists(st.lists(CHANGE, max_size=5), max_size=5), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200, deadline=None)
def test_of_each_key_the_last_change_counts_in_whatever_batches(
    batches: list[list[tuple[bytes, int, int]]], dice: Random, settles: bool
) -> None:
    made = [[(*each[:2], 10 * number + at, each[2]) for at, each in enumerate(of)] for number, of in enumerate(batches)]
    dice.shuffle(made)
    by_offset = sorted((each for of in made for each in of), key=lambda each: each[2])
    in_partition = {(each[0], each[1]): each for each in by_offset}
    last = {each[0]: each for each in sorted(in_partition.values(), key=lambda each: (each[3], each[1]))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upsert, "FILE_SIZE_MAX", 4 if settles else 64 << 20)
        assert kept(*map(rows, made)) == {each[:3] for each in last.values()}


@pytest.mark.parametrize("changed", ["", "a", "ab", "l", "kl", "e", "adgj", "bcdefghijk", "abcdefghijkl", "x"])
@pytest.mark.parametrize("keyed_rows", [5, 1 << 20])
def test_the_rows_that_stay_are_those_of_the_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, keyed_rows: int
) -> None:
    monkeypatch.setattr(upsert, "KEYED_ROWS", keyed_rows)
    monkeypatch.setattr(stored_rows, "BATCH_ROWS", 4)
    stage = LakeStage(tmp_path)
    stage.append([Record(each.encode(), each.encode(), START_MS) for each in "abcdefghijkl"])
    stage.follow(mode="upsert")
    table = stage.table()
    (task,) = table.scan().plan_files()
    keys = keys_of(*(each.encode() for each in changed)) if changed else NO_KEYS
    target = schema_to_pyarrow(table.schema(), include_field_ids=True)
    stays = [*rows_that_stay(table.metadata, table.io, task, target, keys, ["value"])]
    assert "".join(b"".join(each["value"].to_pylist()).decode() for each in stays) == "".join(
        each for each in "abcdefghijkl" if each not in changed
    )


def test_nothing_changes_nothing() -> None:
    assert [len(each) for each in KeyChanges().rows_and_keys()] == [0, 0]
    assert kept(rows([])) == set()


def test_only_files_with_one_of_the_keys_are_replaced(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    for key in (b"a", b"m", b"z"):
        stage.append([Record(key, b"1", START_MS), Record(key + b"+", b"1", START_MS)])
        stage.follow(mode="upsert")
    table = stage.table()

    def found(keys: ChangedKeys) -> MatchedKeys:
        target = schema_to_pyarrow(table.schema(), include_field_ids=True)
        return match_changed_keys(table.metadata, table.io, table.scan().plan_files(), target, keys)

    counts = {key: [each.file.record_count for each in found(keys_of(key)).files] for key in (b"m", b"m,", b"n")}
    assert counts == {b"m": [2], b"m,": [], b"n": []}
    assert found(NO_KEYS).files == []
    before = {each.file.file_path for each in table.scan().plan_files()}
    stage.append([Record(b"m", b"2", START_MS)])
    stage.follow(mode="upsert")
    after = {each.file.file_path for each in stage.table().scan().plan_files()}
    assert len(before & after) == 2 and len(after) == 3


def by_key(found: pa.Table) -> dict[bytes, bytes]:
    return {row["key"]: row["value"] for row in found.to_pylist()}


@pytest.mark.parametrize("round_size", [1, 64 << 20])
def test_a_key_that_moved_to_a_new_partition_keeps_its_latest_value(tmp_path: Path, round_size: int) -> None:
    """Of a topic that has got partitions the older records of a key may be read in later rounds than its newest."""
    stage = LakeStage(tmp_path)
    stage.append([Record(b"k%d" % (each % 3), b"%d" % each, START_MS + each) for each in range(30)])
    stage.append([Record(b"k0", b"new", START_MS + 100), Record(b"k1", b"old", START_MS - 1)], partition=1)
    expected = {b"k0": b"new", b"k1": b"28", b"k2": b"29"}
    stage.follow(mode="upsert", round_size=round_size)
    assert by_key(stage.table().scan().to_arrow()) == expected
    assert stage.verified().findings == []
    late = [Record(b"k0", b"older", START_MS + 99), Record(b"k1", None, START_MS + 40), Record(b"k2", b"n", START_MS)]
    stage.append(late)
    expected = {b"k0": b"new", b"k2": b"n"}
    assert by_key(moldau.table(stage.warehouse, "t", live=str(stage.logs)).to_table()) == expected
    stage.append([Record(b"k0", None, START_MS + 98)])
    assert by_key(moldau.table(stage.warehouse, "t", live=str(stage.logs)).to_table()) == expected
    stage.follow(mode="upsert", round_size=round_size)
    assert by_key(stage.table().scan().to_arrow()) == expected
    assert stage.verified().findings == []


def test_of_two_equal_times_that_of_the_higher_partition_is_the_later_one(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    for partition, value in ((1, b"b"), (0, b"a"), (2, b"c")):
        stage.append([Record(b"k", value, START_MS)], partition=partition)
        stage.follow(mode="upsert")
        assert by_key(stage.table().scan().to_arrow()) == {b"k": b"c" if partition == 2 else b"b"}


def grown(is_wide: bool) -> dict[str, Any]:
    """A schema with each kind of type that may grow, and with `is_wide` the one that it has grown into."""

    def inner(name: str) -> dict[str, Any]:
        fields = [{"name": "a", "type": "long" if is_wide else "int"}]
        more = [{"name": "b", "type": ["null", "string"]}] if is_wide else []
        return {"type": "record", "name": name, "fields": [*fields, *more]}

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9 if is_wide else 5, "scale": 2}
    types = {
        "n": "long" if is_wide else "int",
        "x": "double" if is_wide else "float",
        "d": decimal,
        "of": inner("Of"),
        "many": {"type": "array", "items": inner("Item")},
        "by": {"type": "map", "values": inner("Value")},
        **({"later": ["null", "int"]} if is_wide else {}),
    }
    return {"type": "record", "name": "V", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("is_wide_first", [False, True])
def test_a_schema_may_grow_between_the_batches_of_a_round(tmp_path: Path, *, is_wide_first: bool, flat: bool) -> None:
    stage = LakeStage(tmp_path)
    inside: dict[bool, Any] = {False: {"a": 1}, True: {"a": 1 << 40, "b": "x"}}
    for partition, is_wide in enumerate((is_wide_first, not is_wide_first)):
        schema, of = grown(is_wide), inside[is_wide]
        stage.put_schema(partition, schema)
        value = {"n": 1, "x": 0.5, "d": Decimal("1.25"), "of": of, "many": [of], "by": {"k": of}, "later": 3}
        stage.append([Record(b"k%d" % partition, framed(partition, schema, value), START_MS)], partition)
    stage.follow(mode="upsert", registry=str(stage.schemas), is_flat=flat)
    assert stage.offsets() == [(0, 0), (1, 0)]
    for row, is_wide in zip(stage.rows(), (is_wide_first, not is_wide_first), strict=True):
        found = row if flat else row["value"]
        expected = {"b": None, **inside[is_wide]}
        assert found["many"] == [expected] and dict(found["by"]) == {"k": expected}
        assert found["later"] == (3 if is_wide else None) and found["d"] == Decimal("1.25")
    assert stage.verified().findings == []
