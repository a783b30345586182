"""Rows in bounded memory as files: partitions of time, more of them than files may be open, files of a bounded size."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import TruncateTransform

from moldau.lake import data_files
from moldau.lake.columns import READ_COLUMNS, raw_schema, read_columns
from moldau.lake.layout import Layout
from moldau.lake.opening import catalog_of
from moldau.protocol.record_builder import Record
from moldau.tables.refusals import Refused
from tests.support.lake_stage import START_MS, LakeStage, all_offsets


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (None, {""}),
        ("hour", {"timestamp_hour=2026-11-30-23/", "timestamp_hour=2026-12-01-00/", "timestamp_hour=1969-12-31-23/"}),
        ("day", {"timestamp_day=2026-11-30/", "timestamp_day=2026-12-01/", "timestamp_day=1969-12-31/"}),
        ("month", {"timestamp_month=2026-11/", "timestamp_month=2026-12/", "timestamp_month=1969-12/"}),
        ("year", {"timestamp_year=2026/", "timestamp_year=1969/"}),
    ],
)
def test_rows_are_in_the_partition_of_their_time(unit: str | None, expected: set[str]) -> None:
    at = datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1_000_000
    times = pa.array([int(at), int(at) - 1, -1], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([times], names=["timestamp"])
    found = Layout(unit).partitioned(batch)
    assert {each.directory for each in found} == expected and sum(each.rows.num_rows for each in found) == 3


@pytest.mark.parametrize("unit", ["hour", "day", "month", "year"])
def test_a_table_is_partitioned_by_the_unit_that_was_chosen(tmp_path: Path, unit: str) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(40, days=40)
    stage.append([Record(b"k", b"v", -1)])
    stage.follow(unit=unit)
    stage.numbered(40, days=40)
    stage.follow(unit="none")  # The unit of a table stays.
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []
    found = stage.table().inspect.partitions()["partition"].to_pylist()
    assert len(found) == {"hour": 41, "day": 41, "month": 3, "year": 2}[unit]


def test_more_partitions_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_MAX", 2)
    stage = LakeStage(tmp_path)
    stage.numbered(50, days=9)
    stage.follow()
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.orphans() == []


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BUFFER_SIZE", 3_000)
    stage = LakeStage(tmp_path)
    stage.numbered(50)
    follower, table = stage.open()
    table._file_size_max = 10_000
    attempt = table.begin()
    (batch,) = follower._reading.batches(follower._reading.plan_round({0: 0}, {0: 50}, 1 << 20)[1], READ_COLUMNS)
    for _ in range(20):
        attempt.add(batch)
    attempt.commit({0: 50})
    counts = [each.file.record_count for each in stage.table().scan().plan_files()]
    assert sum(counts) == 1_000 and 3 < len(counts) < 20


LONG = "z" * 5_000
"""A text for which Parquet writes no bounds."""


def test_a_row_group_without_bounds_hides_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BUFFER_SIZE", 1)  # Each batch is a row group.
    stage = LakeStage(tmp_path)
    for partition, keys in enumerate((["b", "c"], [LONG, "a"], ["b", "d"])):
        stage.append([Record(key.encode(), b"", START_MS) for key in keys], partition)
    stage.follow(key_type="string")
    table = stage.table()
    (task,) = table.scan().plan_files()
    key_id, offset_id = (table.schema().find_field(name).field_id for name in ("key", "offset"))
    assert key_id not in task.file.lower_bounds | task.file.upper_bounds and offset_id in task.file.lower_bounds
    for key, count in (("a", 1), ("b", 2), (LONG, 1)):
        assert table.scan(EqualTo("key", key)).to_arrow().num_rows == count


def test_the_row_of_a_key_without_bounds_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "BUFFER_SIZE", 1)
    stage = LakeStage(tmp_path)
    for keys in (["a", "b"], ["a", LONG], ["a"]):
        stage.append([Record(key.encode(), b"", START_MS) for key in keys])
        stage.follow(mode="upsert")
    assert stage.offsets() == [(0, 1), (0, 3), (0, 4)]
    assert stage.verified().findings == []


def test_a_text_that_cannot_be_shortened_is_described_whole(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    keys = ["a" * 15 + "\ud7ff" + last for last in "bc"]
    stage.append([Record(each.encode(), b"", START_MS) for each in keys])
    stage.follow(key_type="string")
    for each in keys:
        assert stage.table().scan(EqualTo("key", each)).to_arrow().num_rows == 1


def test_a_table_with_other_partitions_is_refused(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    stage.numbered(1)
    catalog = catalog_of(stage.choices())
    catalog.create_namespace("default")
    making = catalog.create_table_transaction("default.t", raw_schema(read_columns(has_headers=False)))
    with making.update_spec() as spec:
        spec.add_field("offset", TruncateTransform(100), "hundreds")
    making.commit_transaction()
    with pytest.raises(Refused, match="a table is followed that is partitioned by a unit of timestamp"):
        stage.open()


def test_floats_have_no_bounds_that_leave_nan_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = LakeStage(tmp_path)
    stage.append([Record(struct.pack(">d", key), b"", START_MS) for key in (3.0, math.nan, 3.0)])
    stage.follow(key_type="double")
    table = stage.table()
    (task,) = table.scan().plan_files()
    key_id, offset_id = (table.schema().find_field(name).field_id for name in ("key", "offset"))
    assert key_id not in task.file.lower_bounds | task.file.upper_bounds and offset_id in task.file.lower_bounds
    footer = pq.read_metadata(task.file.file_path.removeprefix("file://")).row_group(0)
    columns = {footer.column(number).path_in_schema: footer.column(number) for number in range(footer.num_columns)}
    assert columns["offset"].statistics.has_min_max and not columns["key"].is_stats_set
    assert caplog.records == []
