"""DuckDB and Spark read the tables of a follower: rows by record and by key, joined files, columns that were added."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")

from moldau.protocol.record_builder import Record
from tests.lake.readers import Reader, readers
from tests.support.lake_stage import START_MS, LakeStage, framed

pytestmark = pytest.mark.processes


@pytest.fixture(params=readers(), ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest) -> Reader:
    found: Reader = request.param
    if not found.is_there:
        pytest.skip(f"{found.name} is not in {found.home}: `python -m tests.lake --readers` fetches it")
    return found


def test_a_reader_finds_the_rows(tmp_path: Path, reader: Reader) -> None:
    for kind in ("append", "upsert", "decoded"):
        (tmp_path / kind).mkdir()
        stage = LakeStage(tmp_path / kind)
        if kind == "decoded":
            for number in (1, 2):
                fields = [{"name": f"f{each}", "type": ["null", "long"]} for each in range(number)]
                schema = {"type": "record", "name": "R", "fields": fields}
                stage.put_schema(number, schema)
                value = framed(number, schema, {each["name"]: 1 for each in fields})
                stage.append([Record(b"k", value, START_MS)])
                stage.follow(registry=str(stage.schemas))
        else:
            for _ in range(4):
                stage.numbered(20, days=2)
                stage.follow(mode=kind, compact_files_min=3)
        count = len(stage.rows())
        assert count and reader.counts(stage.table().metadata_location) == (count, count), kind
