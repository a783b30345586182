"""Topics as lazy frames of Polars: columns, predicates and limits of a plan reach the scan."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import moldau
from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

pl = pytest.importorskip("polars")
TIME = datetime(2024, 1, 1, tzinfo=UTC)
TIME_US = 1_704_067_200_000_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("polars")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 50})
    return directory


def test_a_plan_gives_the_rows_of_a_frame_in_memory(directory: Path) -> None:
    lazy = moldau.polars(directory, "t")
    whole = pl.DataFrame(moldau.read_topic(directory, "t", columns=lazy.collect_schema().names()).read_all())
    assert lazy.collect().equals(whole)
    plans: list[Callable[[Any], Any]] = [
        lambda frame: frame.filter((pl.col("offset") >= 45) & (pl.col("partition") == 1)).select("key", "offset"),
        lambda frame: frame.filter((pl.col("offset") < 3) | (pl.col("key") == b"key-9")).select("value"),
        lambda frame: frame.filter(pl.col("partition").is_in([1])).group_by("topic").agg(pl.len()),
        lambda frame: frame.select(pl.col("offset").sum()),
        lambda frame: frame.filter(pl.col("offset") < 5).select("offset", "partition"),
        lambda frame: frame.filter(pl.col("timestamp") >= datetime(2020, 9, 13, 12, 26, 45, tzinfo=UTC)).select(
            "offset"
        ),
    ]
    for plan in plans:
        assert plan(lazy).collect().equals(plan(whole.lazy()).collect())
    assert lazy.head(7).collect().equals(whole.head(7))
    assert lazy.select(pl.len()).collect().item() == 450


def test_predicates_bound_the_plan() -> None:
    from moldau.tables.engines.polars_scan import bounds_of

    low, high = ALL_VALUES
    offset, partition, timestamp = (pl.col(name) for name in ("offset", "partition", "timestamp"))

    def bounds(predicate: Any) -> PushedFilters:
        return bounds_of(predicate)

    assert bounds((offset >= 5) & (offset < 9) & (partition == 2)) == PushedFilters(numbers=(2, 3), offsets=(5, 9))
    assert bounds(pl.lit(5) < offset).offsets == (6, high)
    assert bounds((timestamp < TIME) & (offset <= 7)) == PushedFilters(offsets=(low, 8), times_us=(low, TIME_US))
    for other in ((offset > 5) | (partition == 1), ~(offset > 5), offset + 1 > 5, pl.col("key") == b"k", offset > 5.5):
        assert bounds(other) == PushedFilters()


def test_the_form_in_which_polars_writes_a_predicate_is_the_known_one() -> None:
    """If a release of Polars changes it, predicates bound nothing any more: the rows are right, and slower."""
    written = json.loads((pl.col("offset") >= 5).meta.serialize(format="json"))
    assert written["BinaryExpr"]["left"] == {"Column": "offset"} and written["BinaryExpr"]["op"] == "GtEq"
