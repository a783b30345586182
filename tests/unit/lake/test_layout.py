"""Partitions by fields of the value, and the order of rows within a file."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.expressions import EqualTo, IsNull

from moldau.broker.cli.follow_table import partitions_of
from moldau.broker.cli.invocation import CommandError
from moldau.lake.layout import ChosenLayout, directory_name
from moldau.lake.opening import catalog_of
from moldau.protocol.record_builder import Record
from moldau.tables.refusals import Refused
from tests.support.lake_stage import START_MS, LakeStage, all_offsets

DAY_MS = 86_400_000
COUNTRIES = ("DE", "a/b c", None, "é" * 60)


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def orders(stage: LakeStage, count: int, *, keys: int = 1_000) -> None:
    start = stage.ends.get(("t", 0), 0)
    values = [{"country": COUNTRIES[each % 4], "rank": -each % 7} for each in range(start, start + count)]
    stage.append(
        [
            Record(b"k%d" % (each % keys), json.dumps(value).encode(), START_MS + each % 2 * DAY_MS)
            for each, value in enumerate(values, start)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_is_partitioned_by_a_field_of_the_value(stage: LakeStage, mode: str) -> None:
    polars = pytest.importorskip("polars", reason="the extra moldau[polars] is not installed")
    layout = ChosenLayout(("value.country",), ("value.rank", "offset"))
    chosen: dict[str, Any] = {"mode": mode, "schema": "sample", "layout": layout, "unit": "day", "compact_files_min": 2}
    for _ in range(3):
        orders(stage, 40, keys=30)
        stage.follow(**chosen)
    table = stage.table()
    names = [each.name for each in table.spec().fields]
    assert names == ([] if mode == "upsert" else ["timestamp_day"]) + ["value_country"]
    rows = stage.rows()
    if mode == "append":
        assert stage.offsets() == all_offsets(stage.ends.items())
    for task in table.scan().plan_files():
        stored = pq.read_table(task.file.file_path.removeprefix("file://")).to_pylist()
        assert len({row["value"]["country"] for row in stored}) == 1
        order = [(row["value"]["rank"], row["offset"]) for row in stored]
        assert order == sorted(order)
    of_country = table.scan(EqualTo("value.country", "DE"))
    assert of_country.to_arrow().num_rows == sum(row["value"]["country"] == "DE" for row in rows)
    assert {task.file.partition[-1] for task in of_country.plan_files()} == {"DE"}
    assert table.scan(IsNull("value.country")).to_arrow().num_rows == sum(
        row["value"]["country"] is None for row in rows
    )
    seen = polars.scan_iceberg(table).collect().sort("offset")
    assert seen["offset"].to_list() == sorted(row["offset"] for row in rows)
    assert stage.verified().findings == [] and stage.orphans() == []


def test_a_field_that_comes_later_is_a_partition_from_then_on(stage: LakeStage, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    properties: dict[str, Any] = {"rank": {"type": "integer"}}
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    chosen: dict[str, Any] = {"schema": str(file), "layout": ChosenLayout(("value.country",)), "unit": None}
    orders(stage, 8)
    stage.follow(**chosen)
    assert stage.table().spec().is_unpartitioned()
    properties["country"] = {"type": ["string", "null"]}
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    orders(stage, 8)
    stage.follow(**chosen)
    assert [each.name for each in stage.table().spec().fields] == ["value_country"]
    assert stage.offsets() == all_offsets(stage.ends.items()) and stage.verified().findings == []


def test_a_field_that_cannot_name_a_partition_is_refused(stage: LakeStage) -> None:
    stage.append([Record(b"k", b'{"x":1.5}', START_MS)])
    with pytest.raises(Refused, match=r"--partition-by value\.x: it is double"):
        stage.follow(schema="sample", layout=ChosenLayout(("value.x",)))


def test_values_are_names_of_directories() -> None:
    hashed = directory_name("x" * 500)
    values = (None, "null", f"null-{sha256(b'null').hexdigest()[:16]}", "%6Eull", "", "a/b", "..", 5, True, hashed)
    names = [directory_name(each) for each in (*values, "x" * 500, "x" * 501)]
    assert len(set(names)) == len(names)
    assert not any("/" in each or len(each) > 200 or not each for each in names)


@pytest.mark.parametrize(
    ("fields", "other"), [(("value.a_b", "value.a.b"), r"value\.a_b"), (("value.x", "timestamp_day"), "the day")]
)
def test_two_partitions_of_one_name_are_refused(stage: LakeStage, fields: tuple[str, ...], other: str) -> None:
    stage.append([Record(b"k", b'{"a_b":"x","a":{"b":"y"}}', START_MS)])
    with pytest.raises(
        Refused, match=f"--partition-by {fields[1]}: its partition would have the name of that by {other}"
    ):
        stage.follow(schema="sample", layout=ChosenLayout(fields))
    assert not catalog_of(stage.choices()).table_exists("default.t")


def test_the_option_names_a_unit_and_fields() -> None:
    assert partitions_of("day") == ("day", ()) and partitions_of("none") == (None, ())
    assert partitions_of("value.country") == (None, ("value.country",))
    assert partitions_of("hour,value.a,key") == ("hour", ("value.a", "key"))
    for wrong in ("", "day,", "day,hour", "x,x"):
        with pytest.raises(CommandError):
            partitions_of(wrong)
