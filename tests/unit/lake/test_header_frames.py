"""Tables of keys and values whose schemas headers name, with and without a column of headers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("google.protobuf", reason="the extra moldau[schemas] is not installed")

import moldau
from moldau.protocol.record_builder import Record
from moldau.tables.values.registry import ValueNotDecoded
from tests.support.header_frames import AVRO, WRITTEN, put_schemas
from tests.support.lake_stage import START_MS, LakeStage

KEY_ID, VALUE_ID = "__key_schema_id", "__value_schema_id"
FIRST, NESTED = WRITTEN["Protobuf, first message"], WRITTEN["Protobuf, nested message"]


@pytest.fixture
def stage(tmp_path: Path) -> LakeStage:
    made = LakeStage(tmp_path)
    put_schemas(made.schemas)
    return made


@pytest.mark.parametrize("has_headers", [False, True])
def test_the_messages_that_headers_name_share_a_column(stage: LakeStage, has_headers: bool) -> None:
    written = (FIRST, NESTED)
    stage.append([Record(b"k", each.data, START_MS, ((VALUE_ID, each.header),)) for each in written])
    stage.follow(registry=str(stage.schemas), has_headers=has_headers)
    rows = stage.table().scan().to_arrow().sort_by("offset")
    assert rows["value"].to_pylist() == [{"city": "rome", "what": None}, {"city": None, "what": "rome"}]
    assert ("headers" in rows.column_names) == has_headers
    assert stage.verified().findings == []


def test_keys_by_header_have_one_row_each_also_before_the_commit(stage: LakeStage) -> None:
    def order(count: int) -> bytes:
        return b"\x06ada" + bytes([2 * count])

    headers = ((KEY_ID, FIRST.header), (VALUE_ID, AVRO.header))
    chosen = {"registry": str(stage.schemas), "key_type": "registry", "mode": "upsert"}
    stage.append([Record(FIRST.data, order(1), START_MS, headers), Record(FIRST.data, order(2), START_MS, headers)])
    stage.follow(**chosen)
    stage.append([Record(FIRST.data, order(3), START_MS, headers)])
    live = moldau.table(stage.warehouse, "t", live=str(stage.logs), registry=str(stage.schemas)).to_table()
    for rows, count in ((live, 3), (stage.table().scan().to_arrow(), 2)):
        assert rows["key"].to_pylist() == [FIRST.value]
        assert rows["value"].to_pylist() == [{"customer": "ada", "count": count}]
    stage.append([Record(FIRST.data, None, START_MS, headers)])
    stage.follow(**chosen)
    assert stage.rows() == []


def test_a_header_that_names_no_schema_makes_a_misfit(stage: LakeStage) -> None:
    framed = b"\0\0\0\0\7" + AVRO.data
    stage.append([Record(b"k", framed, START_MS, ((VALUE_ID, b"\2"),))])
    with pytest.raises(ValueNotDecoded, match="t-0, offset 0: the header of the schema's id has neither"):
        stage.follow(registry=str(stage.schemas))
    stage.follow(registry=str(stage.schemas), misfits="dead-letter")
    assert stage.offsets("t_dead_letters") == [(0, 0)] and stage.rows() == []
