"""A filter over a topic gives the rows that the same filter gives over the same rows in memory, whatever it compares
with: pruning leaves out nothing more, and refuses nothing that the engine itself does not refuse.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moldau
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.refusals import Refused
from tests.support.segments import write_checkpoints, write_partition

pytestmark = pytest.mark.slow

COLUMNS: Final = ("partition", "offset", "timestamp")
STARTS: Final = (0, (1 << 24) - 2, (1 << 53) - 2)
"""First offsets of the partitions: those of the last two pass what a float and a double hold exactly."""
TIMES_MS: Final = (-1, 0, 1, 1_700_000_000_000, 3, 253_402_300_800_000, 1 << 53)
Rows = list[tuple[int, int, int]]
Filter = tuple[str, str, Any]
"""A column, a comparison, and a literal."""
NUMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.sampled_from([start + each for start in STARTS for each in range(-1, 5)]),
    st.floats(allow_subnormal=False),
    st.sampled_from([start + each / 2 for start in STARTS for each in range(9)]),
    st.sampled_from([0.0, -0.0, 1.0, 40.5, math.nan, math.inf, -math.inf]),
    st.decimals(-(10**20), 10**20, places=3),
    st.sampled_from(["1", "x", b"k"]),
)
ZONES: st.SearchStrategy[Any] = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
TIMES = st.one_of(
    st.none(),
    st.datetimes(datetime(1900, 1, 1), timezones=ZONES),
    st.sampled_from([datetime(1970, 1, 1, tzinfo=UTC), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]),
    st.dates(date(1900, 1, 1)),
    st.sampled_from([0, 1.0, "2023-11-14"]),
)
OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
FILTERS = st.one_of(
    st.tuples(st.sampled_from(COLUMNS[:2]), st.sampled_from([*OPERATORS, "IN"]), NUMBERS),
    st.tuples(st.just("timestamp"), st.sampled_from([*OPERATORS, "IN"]), TIMES),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filters")
    ends = {}
    for partition, start in enumerate(STARTS):
        batches = [
            build_batch([Record(b"k", b"v", time)], base_offset=start + number, partition_leader_epoch=0)
            for number, time in enumerate(TIMES_MS)
        ]
        ends["t", partition] = write_partition(directory, batches, partition=partition)
    write_checkpoints(directory, ends)
    return directory


@pytest.fixture(scope="module")
def whole(directory: Path) -> pa.Table:
    rows = moldau.read_topic(directory, "t", columns=COLUMNS).read_all()
    assert rows.num_rows == len(STARTS) * len(TIMES_MS)
    return rows


def rows_of(table: pa.Table) -> Rows:
    """The rows, with times in microseconds."""
    return sorted(zip(*(table.column(name).cast(pa.int64()).to_pylist() for name in COLUMNS), strict=True))


def answer(read: Callable[[], Rows], *refusals: type[Exception]) -> Rows | None:
    """The rows; None if the engine refuses the filter."""
    try:
        return read()
    except refusals:
        return None


@settings(max_examples=150, deadline=None)
@given(FILTERS)
def test_pyarrow(directory: Path, whole: pa.Table, drawn: Filter) -> None:
    name, comparison, value = drawn
    column = pc.field(name)
    try:
        wanted = column.isin([value]) if comparison == "IN" else OPERATORS[comparison](column, value)
    except (pa.ArrowException, OverflowError, TypeError):
        return  # Not an expression.
    in_memory = answer(lambda: rows_of(whole.filter(wanted)), pa.ArrowException, TypeError)
    ours = answer(
        lambda: rows_of(moldau.read_topic(directory, "t", columns=COLUMNS, filter=wanted).read_all()), Refused
    )
    # If PyArrow refuses some rows, those that are left may hold none of them.
    assert ours == in_memory or in_memory is None


def polars_filter(drawn: Filter) -> pl.Expr:
    name, comparison, value = drawn
    column = pl.col(name)
    wanted = column.is_in([value]) if comparison == "IN" else OPERATORS[comparison](column, pl.lit(value))
    assert isinstance(wanted, pl.Expr)
    return wanted


@settings(max_examples=150, deadline=None)
@given(FILTERS)
def test_polars(directory: Path, whole: pa.Table, drawn: Filter) -> None:
    refused = (pl.exceptions.PolarsError, OverflowError, TypeError, ValueError)

    def read(frame: pl.LazyFrame) -> Rows | None:
        return answer(
            lambda: rows_of(frame.filter(polars_filter(drawn)).select(COLUMNS).collect().to_arrow()), *refused
        )

    assert read(moldau.polars(directory, "t")) == read(pl.LazyFrame(whole))


def literal(value: object) -> str:
    """A value as SQL of DuckDB writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"'{value}'::DOUBLE"
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'::{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'}"
    if isinstance(value, date):
        return f"'{value}'::DATE"
    if isinstance(value, bytes):
        return f"'{value.decode()}'::BLOB"
    return f"'{value}'" if isinstance(value, str) else str(value) if isinstance(value, Decimal) else str(value).lower()


@settings(max_examples=150, deadline=None)
@given(FILTERS)
def test_duckdb(directory: Path, whole: pa.Table, drawn: Filter) -> None:
    name, comparison, value = drawn
    query = f'SELECT "partition", "offset", epoch_us("timestamp") FROM t WHERE "{name}" {comparison} ({literal(value)})'

    def read(connection: duckdb.DuckDBPyConnection) -> Rows | None:
        return answer(lambda: sorted(connection.sql(query).fetchall()), duckdb.Error)

    with duckdb.connect(config={"threads": 1}) as memory, duckdb.connect(config={"threads": 1}) as over:
        memory.register("whole", whole)
        memory.sql("CREATE TABLE t AS FROM whole")
        assert read(moldau.duckdb(over, directory, names="t", threads=0)) == read(memory)


def test_a_float_beside_an_integer_that_it_cannot_hold(directory: Path) -> None:
    """PyArrow compares with 40.5 as a float32 (findings/pyarrow_float_literals.sh)."""

    def offsets(wanted: pc.Expression) -> list[int]:
        found = moldau.read_topic(directory, "t", columns=["offset"], filter=wanted, end={1: STARTS[1], 2: STARTS[2]})
        offsets: list[int] = found.read_all().column(0).to_pylist()
        return offsets

    assert offsets(pc.field("offset") >= 4.5) == [5, 6]
    assert offsets(pc.field("partition") == 0.0) == offsets(pc.field("partition").isin([0.0])) == list(range(7))
    with pytest.raises(Refused, match=r"filter: PyArrow cannot .*16777217 .* pc.field\(name\).cast\('float64'\)"):
        moldau.read_topic(directory, "t", filter=pc.field("offset") >= 40.5).read_all()
    far = moldau.read_topic(directory, "t", filter=pc.field("offset").cast("float64") >= 16777217.0, end={2: STARTS[2]})
    assert far.read_all().num_rows == 4
