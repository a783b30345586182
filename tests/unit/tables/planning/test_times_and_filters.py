"""Offsets by time, and the predicates that the source takes over: exact, and pruned before bytes are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from moldau.spark_jobs.views.records import FilteringReader
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.tables.refusals import Refused
from pyspark_moldau import DefaultSource
from tests.support.segments import SMALL_SEGMENTS, mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of

pytestmark = pytest.mark.slow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = "offset,timestamp"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("times")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 390, ("t", 1): 50})
    return directory


def times_ms(directory: Path, partition: int = 0) -> list[int]:
    rows = rows_of(directory, assign=json.dumps({"t": [partition]}), columns=COLUMNS)
    return [int((row["timestamp"] - EPOCH) / timedelta(milliseconds=1)) for row in rows]  # type: ignore[operator]


def read(directory: Path, **options: str) -> list[object]:
    return [row["offset"] for row in rows_of(directory, assign='{"t": [0]}', columns="offset", **options)]


def test_an_offset_by_time_is_what_the_log_says(directory: Path) -> None:
    times = times_ms(directory)
    log = Log.open(LocalFiles(), f"{directory}/t-0", SMALL_SEGMENTS, clean_shutdown=True, now_ms=0)
    for time in sorted({*times, *(time + 1 for time in times[::7]), 0}):
        found = log.offset_for_timestamp(time)
        if found is None or found.offset >= 390:
            assert read(directory, endingTimestamp=str(time)) == list(range(390))
            continue
        assert found.offset == next(offset for offset, each in enumerate(times) if each >= time)
        assert read(directory, startingTimestamp=str(time))[0] == found.offset
        assert len(read(directory, endingTimestamp=str(time))) == found.offset
    log.close(0, clean=True)


def test_a_start_after_all_records_is_refused_or_the_end(directory: Path) -> None:
    late = {"startingTimestamp": str(max(times_ms(directory)) + 1)}
    with pytest.raises(Refused, match="t-0: no record has the starting time"):
        read(directory, **late)
    assert read(directory, **late, startingOffsetsByTimestampStrategy="latest") == []


def test_times_are_given_for_each_partition(directory: Path) -> None:
    times = times_ms(directory, 1)
    asked = json.dumps({"t": {"0": 0, "1": times[20]}})
    rows = rows_of(directory, subscribe="t", startingOffsetsByTimestamp=asked, columns="partition,offset")
    assert sum(row["partition"] == 0 for row in rows) == 390
    with pytest.raises(Refused, match="endingOffsetsByTimestamp does not name t-1"):
        rows_of(directory, subscribe="t", endingOffsetsByTimestamp='{"t": {"0": 5}}')


COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    ds.EqualTo: lambda a, b: a == b,
    ds.GreaterThan: lambda a, b: a > b,
    ds.GreaterThanOrEqual: lambda a, b: a >= b,
    ds.LessThan: lambda a, b: a < b,
    ds.LessThanOrEqual: lambda a, b: a <= b,
}
values = {
    "partition": st.integers(-1, 3),
    "offset": st.integers(-5, 400),
    "timestamp": st.integers(0, 400 * 37).map(lambda each: EPOCH + timedelta(milliseconds=1_600_000_000_000 + each)),
}


@st.composite
def filters(draw: st.DrawFn) -> ds.Filter:
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from(list(COMPARISONS)))
    wanted: ds.Filter = kind((column,), draw(values[column]))
    return wanted


@settings(max_examples=80, deadline=None)
@given(st.lists(filters(), max_size=3))
def test_what_is_taken_over_is_exact(directory: Path, drawn: list[ds.Filter]) -> None:
    options = {"path": str(directory), "subscribe": "t", "pushdown": "true"}
    names = ("partition", "offset", "timestamp")
    reader = DefaultSource(options).reader(StructType([DefaultSource(options).schema()[name] for name in names]))
    assert isinstance(reader, FilteringReader)
    assert list(reader.pushFilters(drawn)) == []
    found = [
        tuple(row.values()) for task in reader.partitions() for each in reader.read(task) for row in each.to_pylist()
    ]
    everything = rows_of(directory, subscribe="t", columns=",".join(names))
    assert found == [
        tuple(row.values())
        for row in everything
        if all(COMPARISONS[type(each)](row[each.attribute[0]], each.value) for each in drawn)  # type: ignore[attr-defined]
    ]


def test_other_predicates_stay_with_spark() -> None:
    reader = DefaultSource({"path": "/d", "subscribe": "t", "pushdown": "true"}).reader(StructType())
    assert isinstance(reader, FilteringReader)
    others = [
        ds.EqualTo(("key",), b"k"),
        ds.IsNull(("offset",)),
        ds.In(("offset",), (1, 2)),
        ds.Not(ds.EqualTo(("offset",), 1)),
        ds.EqualTo(("timestamp",), datetime(2026, 1, 1)),
    ]
    assert list(reader.pushFilters([*others, ds.IsNotNull(("offset",)), ds.In(("partition",), (1,))])) == others


def test_a_reader_without_the_option_defines_no_push_down(directory: Path) -> None:
    """Spark refuses every query over a reader that defines it, while its own setting is off."""
    reader = DefaultSource({"path": str(directory), "subscribe": "t"}).reader(StructType())
    assert "pushFilters" not in vars(type(reader))
