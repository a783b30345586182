"""A table and the segments behind it as one relation: in each engine, by key, with schemas that grow, pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

import pyarrow.compute as pc  # type: ignore[import-untyped]

import moldau
from moldau.lake.live_table import LiveTable
from moldau.protocol.record_builder import Record
from moldau.storage.checkpoints.partition_metadata import write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.refusals import DataLost, Refused, TopicRecreated
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.lake_stage import START_MS, LakeStage, all_offsets, framed
from tests.support.segments import write_checkpoints

pytestmark = pytest.mark.slow

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
DEEP = {
    "type": "record",
    "name": "Basket",
    "fields": [{"name": "items", "type": ["null", {"type": "array", "items": ORDER}]}],
}


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    return LakeStage(tmp_path)


def live(stage: LakeStage, **further: Any) -> LiveTable:
    return moldau.table(stage.warehouse, "t", live=str(stage.logs), **further)


def places(found: Any) -> list[tuple[int, int]]:
    return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def test_the_table_and_its_tail_are_one_relation_in_each_engine(stage: LakeStage) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the extra moldau[sql] is not installed")
    stage.numbered(200, days=3)
    stage.follow()
    stage.numbered(50, days=2)
    stage.numbered(30, partition=1)
    found = live(stage)
    assert found.table_offsets == {0: 200} and found.offsets == {0: 250, 1: 30}
    rows = found.to_table()
    assert places(rows) == all_offsets(stage.ends.items())
    truth = moldau.read_topic(str(stage.logs), "t", columns=rows.schema.names).read_all()
    in_order = [("partition", "ascending"), ("offset", "ascending")]
    assert rows.sort_by(in_order).to_pylist() == truth.sort_by(in_order).to_pylist()
    assert found.reader().read_all().equals(rows) and found.count_rows() == 280
    assert found.pandas()["offset"].tolist() == rows["offset"].to_pylist()
    assert found.polars().collect().to_arrow()["value"].to_pylist() == rows["value"].to_pylist()
    con = found.duckdb()
    joined = 'select count(*), count(distinct (a.partition, a."offset")) from t a join t b using (partition, "offset")'
    assert con.sql(joined).fetchall() == [(280, 280)]
    assert duckdb.sql('select max("offset") from found').fetchall() == [(249,)]
    assert moldau.table(stage.warehouse, "t").count_rows() == 200


def test_a_relation_is_pinned_and_renewed(stage: LakeStage) -> None:
    stage.numbered(40)
    follower = stage.follow(compact_files_min=2)
    stage.numbered(10)
    found = live(stage)
    before = found.to_table()
    follower.catch_up()
    stage.numbered(5)
    follower.catch_up()
    stage.numbered(1)
    assert found.to_table().equals(before) and before.num_rows == 50
    assert places(found.renewed().to_table()) == all_offsets(stage.ends.items())


def test_the_last_record_of_a_key_counts_wherever_it_is(stage: LakeStage) -> None:
    old = [Record(key, b"1", START_MS) for key in (b"a", b"b", b"c")]
    stage.append(old)
    follower = stage.follow(mode="upsert")
    assert live(stage).count_rows() == 3
    stage.append([Record(b"a", b"2", START_MS), Record(b"b", None, START_MS), Record(b"d", b"1", START_MS)])
    stage.append([Record(b"e", b"1", START_MS), Record(b"e", None, START_MS), Record(b"a", b"3", START_MS)])
    found = live(stage).to_table()
    follower.catch_up()
    assert sorted(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == [
        (b"a", b"3"),
        (b"c", b"1"),
        (b"d", b"1"),
    ]
    in_order = [("offset", "ascending")]
    assert found.sort_by(in_order).equals(live(stage).to_table().sort_by(in_order))
    # A bound that the row of the table satisfies, and its replacement does not: no row of the key is left.
    stage.append([Record(b"c", b"2", START_MS)])
    assert live(stage).to_table(filter=pc.field("offset") < 5)["key"].to_pylist() == []
    assert live(stage).to_table(["value"], filter=pc.field("key") == b"c")["value"].to_pylist() == [b"2"]


def test_bounds_leave_out_files_and_slices_and_no_row(stage: LakeStage) -> None:
    for partition in (0, 1):
        stage.numbered(100, partition, days=4)
    stage.follow()
    for partition in (0, 1):
        stage.numbered(20, partition, days=4)
    found = live(stage)
    everything = found.to_table()
    late = pc.field("timestamp") >= pc.scalar(everything["timestamp"].to_pylist()[0])
    for condition in (pc.field("partition") == 1, pc.field("offset") >= 95, pc.field("partition").isin([0]), late):
        assert places(found.to_table(filter=condition)) == places(everything.filter(condition))
    progress: list[moldau.tables.reading.scan.Progress] = []
    list(live(stage, filter=pc.field("offset") >= 110, progress=progress.append).to_batches())
    assert progress[-1].tasks_count == 2 and progress[-1].rows == 20  # The slices of the tail, and no file.


def test_values_of_schemas_that_the_table_has_not_met(stage: LakeStage) -> None:
    for number, schema in enumerate((ORDER, WIDER, DEEP), 1):
        stage.put_schema(number, schema)
    stage.append([Record(b"a", framed(1, ORDER, {"id": 7}), START_MS), Record(b"b", None, START_MS)])
    registry = str(stage.schemas)
    follower = stage.follow(registry=registry)
    stage.append([Record(b"c", framed(2, WIDER, {"id": 1 << 40, "note": "n"}), START_MS)])
    stage.append([Record(b"d", framed(3, DEEP, {"items": None}), START_MS)])
    stage.append([Record(b"d", framed(3, DEEP, {"items": []}), START_MS)])
    found = live(stage, registry=registry)
    rows = found.to_table()
    nothing = {"id": None, "note": None, "items": None}
    assert rows["value"].to_pylist() == [
        nothing | {"id": 7},
        None,
        nothing | {"id": 1 << 40, "note": "n"},
        nothing,
        nothing | {"items": []},
    ]
    assert live(stage, registry=registry).to_table(["offset"])["offset"].to_pylist() == list(range(5))
    follower.catch_up()
    assert live(stage, registry=registry).to_table().equals(rows)
    with pytest.raises(Refused, match="has decoded values"):
        live(stage)


def test_a_record_that_does_not_fit_is_named_or_left_out(stage: LakeStage) -> None:
    stage.put_schema(1, ORDER)
    stage.append([Record(b"a", framed(1, ORDER, {"id": 7}), START_MS)])
    registry = str(stage.schemas)
    stage.follow(registry=registry)
    stage.append([Record(b"x", b"not framed", START_MS), Record(b"a", framed(1, ORDER, {"id": 8}), START_MS)])
    with pytest.raises(ValueNotDecoded, match="t-0, offset 1"):
        live(stage, registry=registry).to_table(["offset"])
    found = live(stage, registry=registry, misfits="skip").to_table(["offset"])
    assert found["offset"].to_pylist() == [0, 2]
    with pytest.raises(Refused, match="misfits: null is neither"):
        live(stage, misfits="null")


def test_headers_and_columns_without_values(stage: LakeStage) -> None:
    stage.append([Record(b"k", b"v", START_MS, (("trace", b"1"),))])
    stage.follow(has_headers=True)
    stage.append([Record(b"k", b"w", START_MS, (("none", None),))])
    found = live(stage).to_table()
    assert found["headers"].to_pylist() == [[{"key": "trace", "value": b"1"}], [{"key": "none", "value": None}]]
    assert live(stage).to_table(["headers", "offset"]).schema.names == ["headers", "offset"]


def test_what_cannot_be_read_is_refused(stage: LakeStage, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere: there is no catalog\.db"):
        moldau.table(tmp_path / "nowhere", "t")
    assert not (tmp_path / "nowhere").exists()
    stage.numbered(20)
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", b"1" * 16)
    follower = stage.follow()
    with pytest.raises(Refused, match=r"there is no table default\.a_b and no table a\.b"):
        moldau.table(stage.warehouse, "a.b")
    with pytest.raises(Refused, match="give a warehouse, or a catalog"):
        moldau.table(None, "t")
    follower.catch_up()
    stage.numbered(10)
    write_checkpoints(stage.logs, stage.ends, {("t", 0): 25})
    with pytest.raises(DataLost, match="t-0"):
        live(stage)
    write_topic_id(LocalFiles(), f"{stage.logs}/t-0", b"2" * 16)
    with pytest.raises(TopicRecreated):
        live(stage)
    assert moldau.table(stage.warehouse, "default.t").count_rows() == 20


def test_rows_that_another_program_has_deleted_stay_deleted(stage: LakeStage) -> None:
    stage.numbered(20)
    stage.follow(unit=None)
    stage.table().delete("offset < 5")
    stage.numbered(5)
    assert places(live(stage).to_table(["value", "partition", "offset"])) == [(0, each) for each in range(5, 25)]
