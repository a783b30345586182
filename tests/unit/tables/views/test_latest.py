"""The table `latest`: the last record of each key of a partition, now and as of an offset or a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.protocol.primitives import MalformedMessage
from moldau.tables.decoding import newest_records
from moldau.tables.origins.broker_batches import BrokerBatches
from moldau.tables.origins.port import Slice, StoredSegment
from moldau.tables.views import latest
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(5, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 50})
    return tmp_path


@pytest.fixture(params=[True, False], ids=["records", "rows"], autouse=True)
def is_chosen_before_decoding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways of a task: it chooses encoded records, or decoded rows."""
    is_so = bool(request.param)
    monkeypatch.setattr(newest_records, "is_map_compiled", lambda: is_so)
    return is_so


def expected(directory: Path, *, keeps_tombstones: bool, **options: str) -> dict[object, object]:
    """(partition, key) to offset, from all records."""
    last: dict[object, tuple[object, object]] = {}
    for row in rows_of(directory, subscribe="t", **options):
        if row["key"] is not None:
            last[row["partition"], row["key"]] = row["offset"], row["value"]
    return {key: offset for key, (offset, value) in last.items() if keeps_tombstones or value is not None}


def found(directory: Path, **options: str) -> dict[object, object]:
    rows = rows_of(directory, subscribe="t", table="latest", **options)
    last: dict[object, object] = {(row["partition"], row["key"]): row["offset"] for row in rows}
    assert len(last) == len(rows), "a key is there once in a partition"
    return last


@pytest.mark.parametrize("slice_size", [1_000, 16 << 20])
def test_the_last_record_of_each_key(directory: Path, slice_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "SLICE_SIZE", slice_size)
    assert found(directory) == expected(directory, keeps_tombstones=False)
    with_tombstones = found(directory, tombstones="keep")
    assert with_tombstones == expected(directory, keeps_tombstones=True)
    assert len(with_tombstones) > len(found(directory))


def test_as_of_offsets(directory: Path) -> None:
    bounds = json.dumps({"t": {"0": 123, "1": 7}})
    assert found(directory, asOf=bounds) == expected(directory, keeps_tombstones=False, endingOffsets=bounds)


def test_as_of_a_time(directory: Path) -> None:
    time = str(1_600_000_000_000 + 37 * 20)
    found_then = found(directory, asOf=time)
    assert found_then == expected(directory, keeps_tombstones=False, endingTimestamp=time)
    assert 0 < len(found_then) < len(found(directory))


def test_long_keys_are_told_apart(tmp_path: Path) -> None:
    from moldau.protocol.record_builder import Record, build_batch

    keys = [b"x" * 40 + b"%d" % (number % 3) for number in range(9)]
    write_partition(tmp_path, [build_batch([Record(key, b"v", 5) for key in keys])])
    write_checkpoints(tmp_path, {("t", 0): 9})
    assert sorted(found(tmp_path).values(), key=str) == [6, 7, 8]


def test_only_columns_that_are_asked_for(directory: Path) -> None:
    rows = rows_of(directory, subscribe="t", table="latest", columns="offset, topic")
    assert len(rows) == len({row["offset"] for row in rows}) and {*rows[0]} == {"offset", "topic"}
    assert {row["offset"] for row in rows} == set(found(directory).values())


def test_a_damaged_batch_is_named(directory: Path) -> None:
    path = max((directory / "t-1").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(MalformedMessage, match=r"t-1/.*log, position \d+: the checksum of the batch does not match"):
        found(directory)


def test_a_span_of_a_broker_is_read_in_parts() -> None:
    segment = StoredSegment(100, 1100, 64 << 20, "t-0 at a", False)
    span = Slice("t", 0, BrokerBatches(None, None, False), segment, 0, 64 << 20, None, 100, 1100)  # type: ignore[arg-type]
    parts = list(latest.parts_of(span, 16 << 20))
    assert [(each.start_offset, each.end_offset) for each in parts] == [
        (start, start + 250) for start in range(100, 1100, 250)
    ]
    assert {each.size for each in parts} == {16 << 20}
    assert list(latest.parts_of(span, 64 << 20)) == [span]
