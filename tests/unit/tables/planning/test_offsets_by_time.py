"""Offsets by time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.tables.refusals import Refused
from tests.support.segments import SMALL_SEGMENTS, mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of

pytestmark = pytest.mark.slow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = "offset,timestamp"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("times")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 390, ("t", 1): 50})
    return directory


def times_ms(directory: Path, partition: int = 0) -> list[int]:
    rows = rows_of(directory, assign=json.dumps({"t": [partition]}), columns=COLUMNS)
    return [int((row["timestamp"] - EPOCH) / timedelta(milliseconds=1)) for row in rows]  # type: ignore[operator]


def read(directory: Path, **options: str) -> list[object]:
    return [row["offset"] for row in rows_of(directory, assign='{"t": [0]}', columns="offset", **options)]


def test_an_offset_by_time_is_what_the_log_says(directory: Path) -> None:
    times = times_ms(directory)
    log = Log.open(LocalFiles(), f"{directory}/t-0", SMALL_SEGMENTS, clean_shutdown=True, now_ms=0)
    for time in sorted({*times, *(time + 1 for time in times[::7]), 0}):
        found = log.offset_for_timestamp(time)
        if found is None or found.offset >= 390:
            assert read(directory, endingTimestamp=str(time)) == list(range(390))
            continue
        assert found.offset == next(offset for offset, each in enumerate(times) if each >= time)
        assert read(directory, startingTimestamp=str(time))[0] == found.offset
        assert len(read(directory, endingTimestamp=str(time))) == found.offset
    log.close(0, clean=True)


def test_a_start_after_all_records_is_refused_or_the_end(directory: Path) -> None:
    late = {"startingTimestamp": str(max(times_ms(directory)) + 1)}
    with pytest.raises(Refused, match="t-0: no record has the starting time"):
        read(directory, **late)
    assert read(directory, **late, startingOffsetsByTimestampStrategy="latest") == []


def test_times_are_given_for_each_partition(directory: Path) -> None:
    times = times_ms(directory, 1)
    asked = json.dumps({"t": {"0": 0, "1": times[20]}})
    rows = rows_of(directory, subscribe="t", startingOffsetsByTimestamp=asked, columns="partition,offset")
    assert sum(row["partition"] == 0 for row in rows) == 390
    with pytest.raises(Refused, match="endingOffsetsByTimestamp does not name t-1"):
        rows_of(directory, subscribe="t", endingOffsetsByTimestamp='{"t": {"0": 5}}')
