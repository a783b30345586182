"""The tail of a table by key, chosen by its keys before values are decoded, against all of its records decoded."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import moldau
from moldau.lake import live_table
from moldau.lake.live_table import TopicTail
from moldau.protocol.record_builder import Record
from moldau.storage.compaction.offset_map import ENTRY_SIZE
from moldau.tables.decoding import last_of_keys, newest_records
from moldau.tables.decoding.decoded_rows import DecodedRows
from moldau.tables.decoding.record_columns import arrow_batch
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.lake_stage import START_MS, LakeStage

pytestmark = pytest.mark.slow


class Change(NamedTuple):
    """A record: its key, its partition, its time, and its value; None deletes the row of the key."""

    key: bytes
    partition: int
    at: int
    value: bytes | None


CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from([b"", b"a", b"b", b"eight by", b"c" * 100, *(b"key %d" % each for each in range(20))]),
        st.integers(0, 2),
        st.integers(0, 3),
        st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=40,
)


def append(stage: LakeStage, changes: list[Change]) -> None:
    for partition in sorted({each.partition for each in changes}):
        here = [each for each in changes if each.partition == partition]
        stage.append(
            [Record(each.key, each.value, START_MS + each.at, headers=(("h", each.key),)) for each in here], partition
        )


def scanned(stage: LakeStage, patch: pytest.MonkeyPatch, *, chooses: bool, **further: Any) -> tuple[pa.Table, int]:
    """The rows of the relation, and how often the values of the tail were decoded after a choice by keys."""
    chosen = 0
    plain = TopicTail._chosen_rows_and_keys

    def counted(tail: TopicTail, target: pa.Schema) -> Any:
        nonlocal chosen
        found = plain(tail, target)
        chosen += 1
        return found

    patch.setattr(live_table, "can_select_by_keys", lambda: chooses)
    patch.setattr(TopicTail, "_chosen_rows_and_keys", counted)
    rows = moldau.table(stage.warehouse, "t", live=str(stage.logs), **further).to_table()
    patch.setattr(TopicTail, "_chosen_rows_and_keys", plain)
    return rows.sort_by([("partition", "ascending"), ("offset", "ascending")]), chosen


@given(CHANGES, st.lists(CHANGES, min_size=1, max_size=3), st.sampled_from([1, 200, 2 << 20]), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_and_keys_are_those_of_all_records(
    table: list[Change], tail: list[list[Change]], chunk_size: int, has_headers: bool
) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_of_keys, "CHUNK_SIZE", chunk_size)
        patch.setattr(newest_records, "FIRST_MAP_SIZE_MIN", 10 * ENTRY_SIZE)
        stage = LakeStage(Path(directory))
        append(stage, table)
        stage.follow(mode="upsert", has_headers=has_headers)
        for changes in tail:
            append(stage, changes)
        wanted, no_choice = scanned(stage, patch, chooses=False)
        found, choice = scanned(stage, patch, chooses=True)
        assert (no_choice, choice) == (0, 1)
        assert found.equals(wanted)


def test_a_later_record_of_a_lower_partition_counts_also_with_several_maps_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_records, "FIRST_MAP_SIZE_MIN", 10 * ENTRY_SIZE)
    stage = LakeStage(tmp_path)
    append(stage, [Change(b"a", each, 0, b"table") for each in range(2)])
    stage.follow(mode="upsert")
    append(stage, [Change(b"a", 1, 1, b"superseded")])
    append(stage, [*(Change(b"key %d" % each, 0, 1, b"v") for each in range(20)), Change(b"a", 0, 2, b"last")])
    found, choice = scanned(stage, monkeypatch, chooses=True)
    assert (found.num_rows, choice) == (21, 1)
    assert [value for value in found["value"].to_pylist() if value != b"v"] == [b"last"]


def test_a_superseded_record_of_another_partition_still_ends_the_row_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = LakeStage(tmp_path)
    append(stage, [Change(b"a", 0, 9, b"table")])
    stage.follow(mode="upsert")
    append(stage, [Change(b"a", 0, 1, b"superseded"), Change(b"a", 1, 2, b"last")])
    found, choice = scanned(stage, monkeypatch, chooses=True)
    assert found["value"].to_pylist() == [b"last"] and choice == 1


def test_values_that_count_no_more_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(rows: DecodedRows, *of: Any) -> pa.RecordBatch:
        decoded.append(rows.count)
        return arrow_batch(rows, *of)

    monkeypatch.setattr(last_of_keys, "arrow_batch", counted)
    stage = LakeStage(tmp_path)
    append(stage, [Change(b"a", 0, 0, b"0")])
    stage.follow(mode="upsert")
    append(stage, [Change(b"ab"[at % 2 :][:1], at % 3, 5, b"v") for at in range(60)])
    found, _ = scanned(stage, monkeypatch, chooses=True)
    assert sum(decoded) == 2 and found["partition"].to_pylist() == [2, 2]


def test_with_a_misfit_all_records_are_read_and_the_first_misfit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = LakeStage(tmp_path)
    stage.append([Record(b"a", b"1", START_MS)])
    stage.follow(mode="upsert")
    stage.append([Record(b"b", b"1", START_MS), Record(None, b"1", START_MS), Record(b"c", b"1", START_MS)])
    stage.append([Record(b"d", b"1", 1 << 60)])
    with pytest.raises(ValueNotDecoded, match="t-0, offset 2: the record has no key"):
        scanned(stage, monkeypatch, chooses=True)
    found, choice = scanned(stage, monkeypatch, chooses=True, misfits="skip")
    assert found["key"].to_pylist() == [b"a", b"b", b"c"] and choice == 0
