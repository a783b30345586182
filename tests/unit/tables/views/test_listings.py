"""The tables `topics` and `segments`: what lies in the directories."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.tables.refusals import Refused
from moldau.tables.views.rows import row_batches, time_of
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of

LAST = (1 << 63) // 1000 * 1000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(1, 10), topic="u")
    write_checkpoints(tmp_path, {("t", 0): 350}, {("t", 0): 20})
    return tmp_path


def test_each_partition_has_a_row_with_its_offsets(directory: Path) -> None:
    t, u = rows_of(directory, table="topics")
    assert (t["topic"], t["partition"], t["logStartOffset"], t["highWatermark"]) == ("t", 0, 20, 350)
    assert (t["lastStableOffset"], t["path"], t["broker"]) == (350, f"{directory}/t-0", None)
    assert t["bytes"] == sum(each.stat().st_size for each in (directory / "t-0").glob("*.log"))
    assert (u["topic"], u["highWatermark"], u["segments"]) == ("u", None, 1)


def test_each_segment_has_a_row(directory: Path) -> None:
    rows = rows_of(directory, table="segments", subscribe="t")
    files = sorted((directory / "t-0").glob("*.log"))
    assert [row["path"] for row in rows] == [str(each) for each in files]
    assert [row["baseOffset"] for row in rows] == [int(each.stem) for each in files]
    assert [row["endOffset"] for row in rows[:-1]] == [row["baseOffset"] for row in rows[1:]]
    assert [row["isGrowing"] for row in rows] == [False] * (len(files) - 1) + [True]
    assert all(row["largestTimestamp"] for row in rows[:-1])
    assert {row["tier"] for row in rows} == {"local"}


def test_what_these_tables_cannot_do_is_refused(directory: Path) -> None:
    with pytest.raises(Refused, match="shows what is there now"):
        rows_of(directory, table="topics", snapshot="{}")


def test_a_time_past_the_year_9999_is_a_time_and_one_past_64_bits_the_last_one() -> None:
    """A producer has taken microseconds for milliseconds."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    times = (0, 1_795_000_000_000_000, (1 << 63) - 1, -1, None)
    (batch,) = row_batches([(time_of(each),) for each in times], schema, ["at"])
    assert batch.column("at").cast(pa.int64()).to_pylist() == [0, 1_795_000_000_000_000_000, LAST, None, None]
