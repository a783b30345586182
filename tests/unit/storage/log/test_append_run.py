"""Batches of one client that are appended in one write are as those that are appended one by one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import TimestampType
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.unit.storage.stories import NOW_MS, append, batch, open_log

LEADER_EPOCH = 3
PRODUCE_VERSION = 9
INDEXED_OFTEN = LogConfig(index_interval_bytes=100)


def log_in(directory: Path, config: LogConfig = INDEXED_OFTEN) -> Log:
    """A log with one batch."""
    log = open_log(LocalFiles(), str(directory / "t-0"), config)
    append(log, "first")
    return log


def run(log: Log, batches: list[bytearray]) -> list[tuple[ErrorCode, int, int, int, int]]:
    sent = [memoryview(bytearray(each)) for each in batches]
    return [told(each) for each in log.append_run_as_leader(sent, LEADER_EPOCH, NOW_MS, PRODUCE_VERSION)]


def one_by_one(log: Log, batches: list[bytearray]) -> list[tuple[ErrorCode, int, int, int, int]]:
    return [
        told(log.append_as_leader(bytearray(each), LEADER_EPOCH, NOW_MS, produce_version=PRODUCE_VERSION))
        for each in batches
    ]


def told(result: Any) -> tuple[ErrorCode, int, int, int, int]:
    return (
        result.error,
        result.base_offset,
        result.last_offset,
        result.log_append_time_ms,
        result.log_start_offset,
    )


def kept(log: Log) -> tuple[object, ...]:
    """The files of a log that is closed now, and the producers that it knew."""
    producers = {key: list(entry.batches) for key, entry in log.producers.entries.items()}
    end_offset, epoch, timestamp = log.end_offset, log.epochs.latest_epoch, log.active.max_timestamp
    log.close(NOW_MS, clean=True)
    files = {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}
    return end_offset, epoch, timestamp, producers, files


@pytest.mark.parametrize(
    "batches",
    [
        [batch("a"), batch("b", "c"), batch("d" * 90), batch("e")],
        [batch("a", timestamp=NOW_MS + 5), batch("b", timestamp=NOW_MS + 1), batch("c", timestamp=NOW_MS + 9)],
        [batch("a", "b", producer=(7, 0, 0)), batch("c", producer=(7, 0, 2)), batch("d", producer=(7, 0, 3))],
        [batch("a", "b", producer=(7, 0, 0x7FFFFFFE)), batch("c", producer=(7, 0, 0))],
    ],
)
def test_a_run_leaves_what_single_appends_leave(tmp_path: Path, batches: list[bytearray]) -> None:
    together, alone = log_in(tmp_path / "together"), log_in(tmp_path / "alone")
    assert run(together, batches) == one_by_one(alone, batches)
    assert kept(together) == kept(alone)


def test_a_run_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_in(tmp_path, LogConfig())
    writes: list[int] = []
    write = os.pwritev

    def counted(descriptor: int, buffers: list[memoryview], position: int) -> int:
        writes.append(len(buffers))
        return write(descriptor, buffers, position)

    monkeypatch.setattr(os, "pwritev", counted)
    assert len(run(log, [batch("a"), batch("b"), batch("c")])) == 3
    assert writes == [3]


def damaged(*values: str) -> bytearray:
    bad = batch(*values)
    bad[-1] ^= 1
    return bad


@pytest.mark.parametrize(
    "batches",
    [
        [batch("a"), damaged("b"), batch("c")],
        [batch("a"), batch("b", timestamp=NOW_MS + 3_600_001), batch("c")],
        [batch("a", producer=(7, 0, 0)), batch("a", producer=(7, 0, 0)), batch("b", producer=(7, 0, 1))],
        [batch("a", producer=(7, 0, 0)), batch("b", producer=(7, 0, 5)), batch("c", producer=(7, 0, 1))],
        [batch("a", producer=(7, 0, 0)), batch("b", producer=(7, 1, 0)), batch("c", producer=(7, 1, 1))],
        [batch("a", producer=(7, 0, 0)), batch("b", producer=(8, 0, 0)), batch("c")],
        [batch("a"), batch("b", producer=(8, 0, 0)), batch("c")],
        [batch("a"), batch("b" * 500, codec=Codec.GZIP), batch("c")],
    ],
)
def test_a_run_ends_before_a_batch_that_needs_a_decision_of_its_own(tmp_path: Path, batches: list[bytearray]) -> None:
    together, alone = log_in(tmp_path / "together"), log_in(tmp_path / "alone")
    expected = one_by_one(alone, batches)
    begun = run(together, batches)
    assert len(begun) == 1
    assert begun + one_by_one(together, batches[1:]) == expected
    assert kept(together) == kept(alone)


def test_a_run_ends_before_a_batch_that_belongs_into_a_new_segment(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400)
    batches = [batch("x" * 80) for _ in range(5)]
    together, alone = log_in(tmp_path / "together", config), log_in(tmp_path / "alone", config)
    expected = one_by_one(alone, batches)
    results: list[tuple[ErrorCode, int, int, int, int]] = []
    while len(results) < len(batches):
        left = batches[len(results) :]
        results += run(together, left) or one_by_one(together, left[:1])
    assert results == expected
    assert len(together.segments) == len(alone.segments) > 1
    assert kept(together) == kept(alone)


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME),
        LogConfig(compression_type=Codec.GZIP),
        LogConfig(index_interval_bytes=100, segment_index_bytes=36),
    ],
)
def test_no_run_begins_if_batches_are_rewritten_or_an_index_may_fill(tmp_path: Path, config: LogConfig) -> None:
    log = log_in(tmp_path, config)
    assert run(log, [batch("a"), batch("b")]) == []
    assert log.end_offset == 1


def test_no_run_begins_with_a_compressed_batch(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert run(log, [batch("a", codec=Codec.GZIP), batch("b")]) == []
    assert log.end_offset == 1


def test_no_run_begins_in_an_empty_segment(tmp_path: Path) -> None:
    log = open_log(LocalFiles(), str(tmp_path / "t-0"), LogConfig())
    assert run(log, [batch("a"), batch("b")]) == []
    assert log.end_offset == 0


@pytest.mark.parametrize(("number", "fails"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_failed_write_refuses_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fails: bool
) -> None:
    log = log_in(tmp_path)
    before = (log.end_offset, log.size, len(log.producers.entries))

    def failing(_descriptor: int, _buffers: list[memoryview], _position: int) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", failing)
        batches = [batch("a", producer=(7, 0, 0)), batch("b", producer=(7, 0, 1))]
        assert run(log, batches) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, 0)] * 2
    assert (log.end_offset, log.size, len(log.producers.entries)) == before
    assert (log.failure is not None) == fails
    assert [error for error, *_ in run(log, batches)] == ([] if fails else [ErrorCode.NONE] * 2)
