"""What a leader refuses of a client, and what it rewrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import TimestampType, parse_header
from moldau.protocol.record_builder import Record, build_batch, write_checksum
from moldau.protocol.record_reader import records_of
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from tests.unit.storage.stories import NOW_MS, append, batch, open_log


def new_log(tmp_path: Path, config: LogConfig) -> Log:
    return open_log(LocalFiles(), str(tmp_path / "t-0"), config)


def stored(log: Log, offset: int = 0) -> bytes:
    read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
    assert isinstance(read, LogRead) and read.slice is not None
    return read.slice.read()


def with_base_offset() -> bytearray:
    return batch("a", base_offset=3)


def with_wrong_checksum() -> bytearray:
    damaged = batch("a")
    damaged[-1] ^= 1
    return damaged


def of_an_old_format() -> bytearray:
    old = batch("a")
    old[16] = 1
    return old


def of_control_records() -> bytearray:
    return bytearray(build_batch([Record(b"\0\0\0\0", b"", NOW_MS)], is_control=True))


def with_a_count_that_lies() -> bytearray:
    lying = batch("a", "b")
    lying[57:61] = (3).to_bytes(4, "big")
    write_checksum(lying)
    return lying


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (with_base_offset(), ErrorCode.INVALID_RECORD),
        (with_wrong_checksum(), ErrorCode.CORRUPT_MESSAGE),
        (of_an_old_format(), ErrorCode.INVALID_RECORD),
        (of_control_records(), ErrorCode.INVALID_RECORD),
        (with_a_count_that_lies(), ErrorCode.INVALID_RECORD),
        (batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        (batch("a")[:-1], ErrorCode.INVALID_RECORD),
        (bytearray(), ErrorCode.INVALID_RECORD),
        (batch("x" * 3000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch("x" * 1000), ErrorCode.RECORD_LIST_TOO_LARGE),
        (batch("a", timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch("a", producer=(7, 0, -1)), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_by_name_and_changes_nothing(tmp_path: Path, sent: bytearray, error: ErrorCode) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=900, max_message_bytes=2000))
    append(log, "before")
    size = log.size
    result = log.append_as_leader(sent, 0, NOW_MS)
    assert (result.error, result.base_offset) == (error, -1) and result.error_message
    assert (log.end_offset, log.size, log.failure) == (1, size, None)
    assert append(log, "after") == 1


def test_the_records_at_fault_are_named(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    keyless = bytearray(build_batch([Record(b"k", b"v", NOW_MS), Record(None, b"v", NOW_MS)]))
    result = log.append_as_leader(keyless, 0, NOW_MS)
    assert result.error is ErrorCode.INVALID_RECORD and [each.batch_index for each in result.record_errors] == [1]


def test_the_log_append_time_is_written_and_answered(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    result = log.append_as_leader(batch("a", "b", timestamp=5), 0, NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    assert [record.timestamp for record in records_of(stored(log))] == [NOW_MS, NOW_MS]
    found = log.offset_for_timestamp(NOW_MS)
    assert found is not None and found.offset == 0


def test_a_topic_with_a_codec_of_its_own_stores_that(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(compression_type=Codec.GZIP))
    append(log, "x" * 500)
    append(log, "y" * 500)
    second = stored(log, 1)
    header = parse_header(second)
    assert header.codec is Codec.GZIP and header.base_offset == 1 and len(second) < 300
    assert [record.value for record in records_of(second)] == [b"y" * 500]


def test_what_this_process_makes_may_hold_control_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig())
    for origin in (AppendOrigin.RAFT, AppendOrigin.COORDINATOR):
        assert log.append_as_leader(of_control_records(), 0, NOW_MS, origin=origin).error is ErrorCode.NONE
        assert log.append_as_leader(with_wrong_checksum(), 0, NOW_MS, origin=origin).error is ErrorCode.CORRUPT_MESSAGE
        assert log.append_as_leader(batch("a")[:-1], 0, NOW_MS, origin=origin).error is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 2


def test_a_zstd_batch_needs_a_client_that_knows_it(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig())
    sent = batch("a", codec=Codec.ZSTD)
    refused = log.append_as_leader(sent, 0, NOW_MS, produce_version=6)
    assert refused.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert log.append_as_leader(sent, 0, NOW_MS, produce_version=7).error is ErrorCode.NONE
