"""A log whose segments have messages of formats 0 and 1, as clusters that were upgraded for years have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import MAGIC, crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.damaged_log import find_damage
from moldau.storage.log.log import Log
from moldau.storage.log.log_start import deletable_count
from moldau.storage.log.reading import LogRead
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import LogConfig
from tests.support.old_messages import old_segment
from tests.unit.storage.compaction.histories import clean_log

NOW_MS = 1_700_000_000_000
INTERVAL = LogConfig(index_interval_bytes=150)


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    """What a partition of two segments holds: the first of formats 0 and 1, the second of these and then of batches."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    first, records = old_segment()
    second, more = old_segment(len(records))
    records += more
    new = [Record(b"k", b"new", NOW_MS - 1000 + index, (), len(records) + index) for index in range(3)]
    second += build_batch(new, base_offset=new[0].offset, partition_leader_epoch=4)
    (directory / "00000000000000000000.log").write_bytes(first)
    (directory / f"{more[0].offset:020}.log").write_bytes(second)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n4 {new[0].offset}\n")
    return records + new


def open_log(tmp_path: Path, config: LogConfig = INTERVAL, **known: object) -> Log:
    return Log.open(LocalFiles(), str(tmp_path / "t-0"), config, now_ms=NOW_MS, **known)  # type: ignore[arg-type]


def read_from(log: Log, offset: int) -> list[Record]:
    """The records from an offset on, as a consumer gets them: what a batch holds before the offset is left out."""
    found: list[Record] = []
    while offset < log.end_offset:
        read = log.read(offset, 300, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        data = read.slice.read()
        for position, header in iterate_batches(data):
            assert crc_is_valid(data, position, header)
            found += [each for each in records_of(data, position, header) if each.offset >= offset]
        assert found, "a read from an offset below the end gives a record"
        offset = found[-1].offset + 1
    return found


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_every_offset_is_found_and_the_bytes_are_as_stored(tmp_path: Path, records: list[Record], clean: bool) -> None:
    paths = sorted((tmp_path / "t-0").glob("*.log"))
    before = [path.read_bytes() for path in paths]
    log = open_log(tmp_path, clean_shutdown=clean)
    assert log.end_offset == len(records)
    assert [(each.epoch, each.start_offset) for each in log.epochs.entries] == [(4, len(records) - 3)]
    for offset in range(len(records)):
        assert read_from(log, offset) == records[offset:]
    log.close(NOW_MS, clean=True)
    assert [path.read_bytes() for path in paths] == before
    assert find_damage(LocalFiles(), str(tmp_path / "t-0")) is None


def test_a_segment_of_old_messages_alone_goes_on_with_batches(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    data, records = old_segment()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(data)
    log = open_log(tmp_path)
    assert log.end_offset == len(records)
    result = log.append_as_leader(build_batch([Record(b"k", b"new", NOW_MS)]), 0, NOW_MS)
    assert (result.error, result.base_offset) == (0, len(records))
    assert read_from(log, 0)[:-1] == records


def test_a_torn_message_at_the_end_is_cut_and_a_flushed_one_is_damage(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data, records = old_segment()
    for cut in (1, 30, 60):
        path.write_bytes(data[:-cut])
        for index in (tmp_path / "t-0").glob("*index"):
            index.unlink()
        log = open_log(tmp_path)
        assert log.end_offset == records[-3].offset, "the last wrapper holds three records"
        log.close(NOW_MS, clean=True)
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptLog):
        open_log(tmp_path, recovery_point=len(records))


def test_times_are_found_as_apache_kafka_finds_them(tmp_path: Path, records: list[Record]) -> None:
    log = open_log(tmp_path)
    for timestamp in sorted({each.timestamp for each in records} | {0, NOW_MS}):
        expected = next((each for each in records if each.timestamp >= max(timestamp, 0)), None)
        found = log.offset_for_timestamp(timestamp) if timestamp >= 0 else None
        if timestamp >= 0:
            assert (found and (found.timestamp, found.offset)) == (expected and (expected.timestamp, expected.offset))
    latest = log.offset_of_max_timestamp()
    assert latest is not None and latest.offset == records[-1].offset


def test_retention_goes_by_the_time_of_the_file_for_format_0(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    from tests.support.old_messages import messages, old_records

    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(messages(old_records(0, 4, 0), 0))
    (tmp_path / "t-0" / "00000000000000000004.log").write_bytes(messages(old_records(4, 4, 1), 1))
    config = LogConfig(retention_ms=1000)
    log = open_log(tmp_path, config)
    changed_ms = log.segments[0].largest_timestamp()
    assert changed_ms == LocalFiles().modified_ms(log.segments[0].path(".log"))

    def count(now_ms: int) -> int:
        return deletable_count(
            log.segments[:1] + log.segments[1:],
            config,
            log_start_offset=0,
            end_offset=8,
            high_watermark=8,
            now_ms=now_ms,
        )

    assert count(changed_ms + 1000) == 0
    assert count(changed_ms + 1001) == 2, "the second has times of 2020"


def test_a_follower_takes_old_messages_as_its_leader_stores_them(tmp_path: Path, records: list[Record]) -> None:
    leader = open_log(tmp_path)
    follower = Log.open(LocalFiles(), str(tmp_path / "copy" / "t-0"), INTERVAL, now_ms=NOW_MS)
    while follower.end_offset < leader.end_offset:
        read = leader.read(follower.end_offset, 400, end_offset=leader.end_offset, at_least_one=True)
        assert isinstance(read, LogRead) and read.slice is not None
        assert follower.append_as_follower(read.slice.read(), 4, NOW_MS).error == 0
    assert read_from(follower, 0) == records
    stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "t-0").glob("*.log")))
    copied = b"".join(path.read_bytes() for path in sorted((tmp_path / "copy" / "t-0").glob("*.log")))
    assert copied == stored


def test_compaction_keeps_the_latest_of_each_key_in_batches_of_today(tmp_path: Path, records: list[Record]) -> None:
    config = LogConfig(index_interval_bytes=150, cleanup_policy=("compact",), delete_retention_ms=1 << 40)
    log = open_log(tmp_path, config)
    log.roll(NOW_MS)
    assert clean_log(LocalFiles(), log, NOW_MS) is not None
    latest = {each.key: each.offset for each in records if each.key is not None}
    assert read_from(log, 0) == [each for each in records if each.key is not None and latest[each.key] == each.offset]
    for path in (tmp_path / "t-0").glob("*.log"):
        assert all(header.magic == MAGIC for _, header in iterate_batches(path.read_bytes()))
    assert log.end_offset == len(records)
