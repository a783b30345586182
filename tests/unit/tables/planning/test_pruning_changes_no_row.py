"""The rule of pruning: a read with a filter has the rows that the same filter leaves of a full read.

The bounds come from the data: the ends of each segment in offset and in time, and their neighbours. So each bound
that a plan compares with a segment is met from both sides, by each comparison, through each way into the plan.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import largest_timestamp, list_segments
from tests.support.segments import EPOCH, write_checkpoints, write_partition
from tests.support.tiered_copy import tiered_directory

pytestmark = pytest.mark.slow

Compare = Callable[[Any, Any], Any]
Row = tuple[Any, ...]
COMPARISONS: Final[dict[str, Compare]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
COLUMNS: Final = ("partition", "offset", "timestamp")
EPOCH_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
START_MS: Final = 1_700_000_000_000
SEGMENTS: Final = LogConfig(segment_bytes=1_000, index_interval_bytes=200)
TIMES_MS: Final = (0, 1, 2, 5, 3, 3, 3, 3, 9, 0, 9, 9, 12, 30, 20, 14, 31, 40)
"""The times of batches after the start: they ascend, stand still, and go back over the ends of segments."""
EARLY_MS: Final = (-1, -1, -1, 0, 0, 0, 1, 2, 1, START_MS, START_MS)
"""Times of the batches of partition 1: none, the epoch itself, and later ones."""
PAIRS: Final = 30


class Bound(NamedTuple):
    """A comparison of a column with a value."""

    column: str
    comparison: str
    value: Any

    def holds(self, row: Row) -> bool:
        return bool(COMPARISONS[self.comparison](row[COLUMNS.index(self.column)], self.value))

    def sql(self) -> str:
        value = f"TIMESTAMPTZ '{self.value.isoformat()}'" if self.column == "timestamp" else self.value
        return f'"{self.column}" {self.comparison} {value}'


Read = Callable[..., list[Row]]
"""The rows for which all of some bounds hold."""


def batches_of(times_ms: Sequence[int]) -> Iterator[bytes]:
    random = Random(1)
    for number, at in enumerate(times_ms):
        earlier = at if at <= 0 else at - 1
        records = [Record(b"k", random.randbytes(60), earlier), Record(b"k", random.randbytes(60), at)]
        append_time = at if number % 5 == 4 else None
        yield build_batch(records, base_offset=2 * number, log_append_time_ms=append_time, partition_leader_epoch=EPOCH)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pruned")
    times = [[START_MS + each for each in TIMES_MS], EARLY_MS]
    ends = {
        ("t", partition): write_partition(directory, batches_of(each), partition=partition, config=SEGMENTS)
        for partition, each in enumerate(times)
    }
    write_checkpoints(directory, ends)
    return directory


def bounds_of(place: Path) -> list[Bound]:
    """Each comparison with the ends of each segment, and with what is next to them."""
    values: dict[str, set[Any]] = {"partition": {-1, 0, 1, 2}, "offset": set(), "timestamp": set()}
    for partition in (0, 1):
        segments = list_segments(LocalFiles(), f"{place}/t-{partition}")
        assert len(segments) > 2
        for segment in segments[partition:]:
            latest = largest_timestamp(LocalFiles(), segment)
            latest_us = -1000 if latest is None else latest * 1000
            values["offset"] |= {segment.base_offset + each for each in (-1, 0, 1)}
            values["timestamp"] |= {EPOCH_TIME + timedelta(microseconds=latest_us + each) for each in (-1, 0, 1)}
    return [
        Bound(column, comparison, value)
        for column in COLUMNS
        for value in sorted(values[column])
        for comparison in COMPARISONS
    ]


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The rows, in order."""
    return sorted(
        row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
    )


def by_read_topic(place: Path) -> Read:
    def read(*bounds: Bound) -> list[Row]:
        wanted = [COMPARISONS[each.comparison](pc.field(each.column), each.value) for each in bounds]
        return rows_in(moldau.read_topic(place, "t", columns=COLUMNS, filter=reduce(and_, wanted), threads=0))

    return read


def by_polars(place: Path) -> Read:
    pl = pytest.importorskip("polars")
    frame = moldau.polars(place, "t", threads=0)

    def read(*bounds: Bound) -> list[Row]:
        wanted = [COMPARISONS[each.comparison](pl.col(each.column), each.value) for each in bounds]
        found: list[Row] = frame.filter(*wanted).select(*COLUMNS).collect().rows()
        return sorted(found)

    return read


def by_duckdb(place: Path) -> Read:
    pytest.importorskip("duckdb")
    connection = moldau.duckdb(None, place, names="t", threads=0)

    def read(*bounds: Bound) -> list[Row]:
        wanted = " AND ".join(each.sql() for each in bounds)
        return rows_in(connection.sql(f'SELECT "partition", "offset", "timestamp" FROM t WHERE {wanted}').arrow())

    return read


WAYS: Final = {
    "read_topic": (by_read_topic, 5),
    "polars": (by_polars, 1),
    "duckdb": (by_duckdb, 5),
}
"""What makes a read, and the stride over the bounds. All ways lead to the same plan, so the cheapest takes all bounds;
the others take each comparison, and each distance from the end of a segment, in turn.
"""


def check(read: Read, whole: Sequence[Row], bounds: Sequence[Bound], stride: int) -> None:
    """Compare reads with what their bounds leave of all rows. `<>` prunes nothing, and is read by a stride alone."""
    for bound in [each for each in bounds if each.comparison != "<>" or stride > 1][::stride]:
        assert read(bound) == [row for row in whole if bound.holds(row)], bound
    random = Random(2)
    for _ in range(PAIRS // stride):
        pair = random.sample(bounds, 2)
        assert read(*pair) == [row for row in whole if all(each.holds(row) for each in pair)], pair


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_leaves_out_what_it_says_and_nothing_else(place: Path, way: str) -> None:
    whole = rows_in(moldau.read_topic(place, "t", columns=COLUMNS))
    assert len(whole) == 2 * (len(TIMES_MS) + len(EARLY_MS))
    make, stride = WAYS[way]
    check(make(place), whole, bounds_of(place), stride)


@pytest.mark.filterwarnings("ignore:.*alone does not tell")
def test_a_bound_leaves_out_the_same_of_a_tiered_storage(place: Path, tmp_path: Path) -> None:
    sealed = tiered_directory(tmp_path / "tier", place)
    whole = rows_in(moldau.read_topic(tmp_path / "tier", "t", columns=COLUMNS))
    assert len(whole) == sealed[-1].next_base_offset
    bounds = [each for each in bounds_of(place) if each.column == "timestamp"]
    check(by_polars(tmp_path / "tier"), whole, bounds, 1)
