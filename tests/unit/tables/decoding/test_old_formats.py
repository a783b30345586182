"""Tables over segments with messages of formats 0 and 1."""

from __future__ import annotations

from pathlib import Path

import pytest

import moldau
from moldau.protocol.record_builder import Record
from tests.support.old_messages import old_segment
from tests.support.segments import write_checkpoints
from tests.support.tables import rows_of


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    first, records = old_segment()
    second, more = old_segment(len(records))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(first)
    (tmp_path / "t-0" / f"{len(records):020}.log").write_bytes(second)
    write_checkpoints(tmp_path, {("t", 0): len(records) + len(more)})
    return records + more


def test_a_read_gives_each_record_with_its_offset_and_time(tmp_path: Path, records: list[Record]) -> None:
    rows = moldau.read_topic(tmp_path, "t").read_all().to_pylist()
    got = [(row["offset"], row["key"], row["value"], int(row["timestamp"].timestamp() * 1000)) for row in rows]
    assert got == [(each.offset, each.key, each.value, each.timestamp) for each in records]


def test_any_bounds_give_the_records_between_them(tmp_path: Path, records: list[Record]) -> None:
    for start in range(0, len(records), 3):
        for end in range(start + 1, len(records) + 1, 5):
            rows = moldau.read_topic(tmp_path, "t", start=start, end=end).read_all()
            assert rows["offset"].to_pylist() == list(range(start, end)), (start, end)


def test_spark_and_the_latest_values_see_them(tmp_path: Path, records: list[Record]) -> None:
    rows = rows_of(tmp_path, subscribe="t")
    assert [row["offset"] for row in rows] == [each.offset for each in records]
    latest = {each.key: each.value for each in records if each.key is not None}
    table = moldau.latest(tmp_path, "t").read_all().to_pylist()
    assert {row["key"]: row["value"] for row in table if row["key"] is not None} == {
        key: value for key, value in latest.items() if value is not None
    }


def test_the_table_of_batches_has_a_row_for_each_message(tmp_path: Path, records: list[Record]) -> None:
    rows = moldau.batches(tmp_path, "t").read_all().to_pylist()
    assert sum(row["records"] for row in rows) == len(records)
    assert rows[-1]["lastOffset"] == records[-1].offset and rows[-1]["baseOffset"] == records[-3].offset
    assert {row["codec"] for row in rows} == {"none", "gzip", "snappy", "lz4"}
    sizes = sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    assert sum(row["bytes"] for row in rows) == sizes
