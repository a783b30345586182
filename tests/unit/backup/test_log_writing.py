"""A node that starts on a restored log has its batches, and the log begins and ends where it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.backup.log_writing import RestoredLogWriter
from moldau.protocol.record_batch import BatchHeader, parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.files.memory_files import MemoryFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.unit.storage.compaction.histories import COMPACTED, clean_log, stored

ROOT = "/data"
SEGMENT_BYTES = 400
FAR = 3_000_000_000
"""More offsets than one segment can have."""
NOW_MS = 10_000


def restored(offsets: list[int], end_offset: int, *, start_offset: int = 0, policy: str = "compact") -> Log:
    """Restore a log with a batch at each of these offsets, and load it after a loss of power."""
    files = MemoryFiles(lambda: NOW_MS)
    files.make_directories(ROOT)
    writer = RestoredLogWriter(files, [f"{ROOT}/t-0"], bytes(15) + b"\1", start_offset, SEGMENT_BYTES)
    for offset in offsets:
        batch = batch_at(offset)
        writer.append_batch(parse_header(batch), batch)
    writer.finish(end_offset)
    directory = LogDirectory.open(files, ROOT, lambda _: None)
    return directory.load_log("t", 0, replace(LogConfig(), cleanup_policy=(policy,)), NOW_MS, lambda _: None)


def batch_at(offset: int) -> bytes:
    return build_batch([Record(b"k", bytes(100), 1_000)], base_offset=offset, partition_leader_epoch=3)


def offsets_of(log: Log) -> list[int]:
    return [header.base_offset for header in headers_of(log) if header.records_count]


def headers_of(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.headers()]


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize(
    ("offsets", "end_offset"),
    [
        pytest.param([0, 1, 2, 3], 4, id="no gap"),
        pytest.param([0, 1, 10, 11, 20, 21], 22, id="a gap at each end of a segment"),
        pytest.param([0, 1, 10], 30, id="a gap at the end of the log"),
        pytest.param([0, 1], 30, id="a gap after the end of a segment"),
        pytest.param([FAR, FAR + 1], FAR + 2, id="a first batch far behind the start"),
        pytest.param([0, FAR, 3 * FAR], 5 * FAR, id="gaps of more offsets than a segment has"),
        pytest.param([], 700, id="no batch"),
    ],
)
def test_the_node_has_every_batch(offsets: list[int], end_offset: int, policy: str) -> None:
    log = restored(offsets, end_offset, policy=policy)
    assert offsets_of(log) == offsets
    assert log.end_offset == end_offset
    assert log.log_start_offset == (0 if offsets else end_offset)


def test_a_gap_before_the_first_batch_is_no_later_start() -> None:
    log = restored([7], 8, start_offset=5)
    assert (log.log_start_offset, log.end_offset) == (5, 8)


def test_an_empty_batch_has_the_epoch_of_its_neighbour() -> None:
    """A later epoch would cut the batches after it, an earlier one the empty batch."""
    assert {header.partition_leader_epoch for header in headers_of(restored([0, FAR], 2 * FAR))} == {3}


@pytest.mark.parametrize("gap", [30, FAR])
def test_followers_and_the_cleaner_take_the_empty_batches(gap: int) -> None:
    offsets, end_offset = [0, 1, gap, 2 * gap], 3 * gap
    log = restored(offsets, end_offset)
    files = log.fs
    follower = Log.open(files, f"{ROOT}/f-0", COMPACTED, now_ms=NOW_MS)
    for each in stored(log):
        assert not follower.append_as_follower(each.data, 3, NOW_MS).error
    follower.close(NOW_MS, clean=False)
    follower = Log.open(files, f"{ROOT}/f-0", COMPACTED, now_ms=NOW_MS)
    assert (offsets_of(follower), follower.end_offset) == (offsets, end_offset)
    log.roll(NOW_MS)
    clean_log(files, log)
    assert (offsets_of(log), log.end_offset) == ([2 * gap], end_offset), "all batches have the same key"
