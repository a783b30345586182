"""What a filter says about partition, offset and timestamp: never too little is read, and not much too much."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters
from moldau.tables.reading.filter_bounds import FilterBounds
from moldau.tables.refusals import Refused
from moldau.tables.views.schemas import HEADERS, RECORDS, arrow_schema

SCHEMA = arrow_schema((*RECORDS, HEADERS))
PARTITION, OFFSET, TIMESTAMP, KEY = (pc.field(name) for name in ("partition", "offset", "timestamp", "key"))
TIME = datetime(2024, 1, 1, tzinfo=UTC)
TIME_US = 1_704_067_200_000_000


def pushed(wanted: pc.Expression) -> PushedFilters:
    return FilterBounds(wanted, SCHEMA).pushed()


def test_ranges_are_found() -> None:
    assert pushed((OFFSET >= 100) & (OFFSET < 200)).offsets == (100, 200)
    assert pushed(OFFSET == 7).offsets == (7, 8)
    assert pushed(OFFSET > 0).offsets == (1, ALL_VALUES[1])
    assert pushed(OFFSET <= 0).offsets == (ALL_VALUES[0], 1)
    assert pushed((OFFSET > 99) & (OFFSET <= 199)).offsets == (100, 200)
    assert pushed(TIMESTAMP >= TIME).times_us == (TIME_US, ALL_VALUES[1])
    assert pushed(TIMESTAMP < TIME).times_us == (ALL_VALUES[0], TIME_US)
    assert pushed((OFFSET == 3) | (OFFSET == 9)).offsets == (3, 10)


def test_partitions_are_found_one_by_one() -> None:
    assert pushed(PARTITION.isin([3, 5])).partitions == frozenset({3, 5})
    assert pushed((PARTITION == 3) | ((PARTITION == 8) & (OFFSET < 5))).partitions == frozenset({3, 8})
    assert pushed((PARTITION == 3) & (PARTITION == 8)).partitions == frozenset()


def test_what_says_nothing_prunes_nothing() -> None:
    assert pushed(KEY == b"k") == PushedFilters()
    assert pushed((OFFSET < 5) | (KEY == b"k")) == PushedFilters()
    assert pushed(~KEY.is_null()) == PushedFilters()


def test_the_columns_of_a_filter() -> None:
    assert FilterBounds((OFFSET < 5) & (KEY == b"k"), SCHEMA).needed_columns() == ("key", "offset")
    assert FilterBounds(pc.scalar(True), SCHEMA).needed_columns() == ()


@pytest.mark.parametrize("wrong", [pc.field("nope") == 1, OFFSET == "seven", OFFSET + 1])
def test_a_filter_that_does_not_fit_is_refused(wrong: pc.Expression) -> None:
    with pytest.raises(Refused, match="filter: "):
        FilterBounds(wrong, SCHEMA)


numbers = st.integers(-3, 12)
comparisons = st.builds(
    lambda column, compare, number: compare(column, number),
    st.sampled_from([OFFSET, PARTITION]),
    st.sampled_from(
        [
            lambda a, b: a < b,
            lambda a, b: a <= b,
            lambda a, b: a > b,
            lambda a, b: a >= b,
            lambda a, b: a == b,
            lambda a, b: a != b,
            lambda a, b: a.isin([b, b + 2]),
            lambda a, b: a * 2 < b,
        ]
    ),
    numbers,
)
expressions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_no_row_of_a_filter_is_outside_of_its_bounds(wanted: pc.Expression) -> None:
    rows = [(partition, offset) for partition in range(6) for offset in range(12)]
    table = pa.table(
        {
            "partition": pa.array([each[0] for each in rows], pa.int32()),
            "offset": pa.array([each[1] for each in rows], pa.int64()),
        }
    )
    found = pushed(wanted)
    for row in table.filter(wanted).to_pylist():
        assert found.accepts_partition(row["partition"])
        assert found.offsets[0] <= row["offset"] < found.offsets[1]
