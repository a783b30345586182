"""Each rule of the cleaner, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import FIELDS
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.offset_map import SALT_SIZE
from moldau.storage.compaction.request import CleanerLimits, LogChanged, cleanable_part, cleaning_request
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from tests.unit.storage.compaction.histories import (
    COMPACTED,
    NOW_MS,
    clean_log,
    committed,
    drive,
    end_transaction,
    offsets,
    request_of,
    send,
    stored,
    table,
)

FS = LocalFiles()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log.open(FS, str(tmp_path / "t-0"), COMPACTED, now_ms=NOW_MS)
    yield opened
    opened.close(NOW_MS, clean=False)


def roll(log: Log) -> None:
    """End the active segment behind a last record that is kept whatever comes, so that rules are seen by themselves."""
    send(log, ("end", str(log.end_offset)))
    log.roll(NOW_MS)


def kept(log: Log) -> list[int]:
    """The offsets that are left, without those of the records that `roll` adds and of the active segment."""
    return [
        record.offset
        for each in stored(log)
        for record in each.records
        if record.key != b"end" and record.offset < log.active.base_offset
    ]


def test_the_latest_record_of_each_key_is_kept(log: Log) -> None:
    send(log, ("a", "1"), ("b", "1"), ("a", "2"))
    send(log, ("a", "3"), ("c", "1"))
    roll(log)
    clean_log(FS, log)
    assert kept(log) == [1, 3, 4]
    assert table(log) == {b"a": b"3", b"b": b"1", b"c": b"1", b"end": b"5"}


def test_the_active_segment_is_neither_read_nor_cleaned(log: Log) -> None:
    send(log, ("a", "1"))
    roll(log)
    send(log, ("a", "2"), ("a", "3"))
    clean_log(FS, log)
    assert offsets(log) == [0, 1, 2, 3]


def test_records_without_a_key_are_dropped(log: Log) -> None:
    send(log, (None, "1"), ("a", "1"), (None, None))
    roll(log)
    done = clean_log(FS, log)
    assert kept(log) == [1] and done is not None and done.statistics.invalid_messages_read == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_a_tombstone_goes_once_its_horizon_has_passed(log: Log, codec: Codec) -> None:
    send(log, ("a", "1"), ("b", "1"), timestamp=500)
    send(log, ("a", None), ("c", "x" * 20), codec=codec, timestamp=700)
    roll(log)
    clean_log(FS, log)
    assert kept(log) == [1, 2, 3]
    batch = stored(log)[1]
    horizon_ms = NOW_MS + COMPACTED.delete_retention_ms
    assert batch.header.delete_horizon_ms == horizon_ms and batch.header.codec is codec
    assert [record.timestamp for record in batch.records] == [700, 701] and batch.header.max_timestamp == 701
    for now_ms, left in ((horizon_ms - 1, [1, 2, 3]), (horizon_ms, [1, 3])):
        roll(log)
        clean_log(FS, log, now_ms)
        assert kept(log) == left
    header = stored(log)[1].header
    assert header.delete_horizon_ms == horizon_ms and stored(log)[1].records[0].timestamp == 701
    assert table(log)[b"c"] == b"x" * 20 and b"a" not in table(log)


def test_a_batch_of_which_all_is_kept_is_copied_as_it_is(log: Log) -> None:
    send(log, ("a", "1"), ("b", "1"), codec=Codec.ZSTD, producer=(5, 0, 0))
    before = stored(log)[0].data
    roll(log)
    clean_log(FS, log)
    assert stored(log)[0].data == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rewritten_batch_keeps_its_header(log: Log, codec: Codec) -> None:
    send(log, ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), codec=codec, producer=(5, 3, 7), timestamp=100)
    send(log, ("c", "2"), producer=(5, 3, 11))
    roll(log)
    before = stored(log)[0].header
    clean_log(FS, log)
    after, records, _ = stored(log)[0]
    assert [(record.offset, record.timestamp) for record in records] == [(1, 101), (3, 103)]
    changed = {"batch_length", "crc", "records_count"}
    for name in FIELDS:
        assert name in changed or getattr(after, name) == getattr(before, name), name


def test_the_largest_timestamp_is_that_of_what_is_kept(log: Log) -> None:
    send(log, ("a", "1"), ("b", "1"), timestamp=100)
    send(log, ("b", "2"), timestamp=50)
    roll(log)
    clean_log(FS, log)
    assert stored(log)[0].header.max_timestamp == 100


def test_the_last_batch_of_an_active_producer_is_kept_empty(log: Log) -> None:
    send(log, ("a", "1"), producer=(5, 2, 0), timestamp=123)
    send(log, ("a", "2"), ("b", "1"), producer=(5, 2, 1), codec=Codec.LZ4)
    send(log, ("a", "3"), ("b", "2"))
    roll(log)
    clean_log(FS, log)
    empty = stored(log)[0]
    assert (empty.header.base_offset, empty.header.last_offset, empty.records) == (1, 2, [])
    assert (empty.header.base_sequence, empty.header.last_sequence, empty.header.producer_epoch) == (1, 2, 2)
    assert empty.header.codec is Codec.NONE and empty.header.max_timestamp == NOW_MS + 1
    log.producers.entries.clear()
    roll(log)
    clean_log(FS, log)
    assert stored(log)[0].header.base_offset == 3


def test_the_last_batch_of_the_round_is_kept_empty(log: Log) -> None:
    send(log, ("a", "1"))
    send(log, ("b", "1"))
    log.roll(NOW_MS)
    send(log, ("b", "2"), ("a", "2"))
    log.roll(NOW_MS)
    clean_log(FS, log)
    assert [(each.header.base_offset, len(each.records)) for each in stored(log)] == [(2, 2)]
    send(log, ("c", "1"), ("c", "2"))
    send(log, (None, "no key"))
    log.roll(NOW_MS)
    clean_log(FS, log)
    assert [(each.header.base_offset, len(each.records)) for each in stored(log)] == [(2, 2), (4, 1), (6, 0)]


def test_data_of_an_aborted_transaction_is_dropped_and_its_marker_later(log: Log) -> None:
    send(log, ("a", "1"))
    send(log, ("a", "aborted"), producer=(7, 0, 0), is_transactional=True)
    send(log, ("b", "aborted"), producer=(7, 0, 1), is_transactional=True)
    end_transaction(log, 7, 0, commits=False)
    log.producers.entries[7].batches.clear()
    log.producers.entries[7].producer_epoch = 9
    roll(log)
    clean_log(FS, log)
    assert kept(log) == [0, 3] and log.segments[0].transaction_index.entries()
    roll(log)
    clean_log(FS, log, NOW_MS + 5000)
    assert kept(log) == [0, 3] and not log.segments[0].transaction_index.entries()
    marker = next(each for each in stored(log) if each.header.is_control)
    assert marker.header.delete_horizon_ms == NOW_MS + 6000 and marker.records[0].timestamp == NOW_MS
    for now_ms, left in ((NOW_MS + 5999, [0, 3]), (NOW_MS + 6000, [0])):
        roll(log)
        clean_log(FS, log, now_ms)
        assert kept(log) == left


def test_the_marker_of_a_committed_transaction_stays_as_long_as_its_data(log: Log) -> None:
    send(log, ("a", "1"), producer=(7, 0, 0), is_transactional=True)
    end_transaction(log, 7, 0, commits=True)
    log.producers.entries.clear()
    for round_number in range(3):
        roll(log)
        clean_log(FS, log, NOW_MS + 5000 * round_number)
        assert kept(log) == [0, 1]
    send(log, ("a", "2"))
    for left in ([1, 5], [1, 5], [5]):
        round_number += 1
        roll(log)
        clean_log(FS, log, NOW_MS + 5000 * round_number)
        assert kept(log) == left


def test_an_aborted_transaction_may_end_behind_the_cleaned_part(log: Log) -> None:
    send(log, ("a", "1"))
    send(log, ("a", "aborted"), producer=(7, 0, 0), is_transactional=True)
    roll(log)
    end_transaction(log, 7, 0, commits=False)
    log.producers.entries.clear()
    clean_log(FS, log)
    assert kept(log) == [0] and [record.value for record in committed(log) if record.key == b"a"] == [b"1"]


def test_an_open_transaction_is_not_cleaned(log: Log) -> None:
    send(log, ("a", "1"))
    roll(log)
    send(log, ("a", "2"), producer=(7, 0, 0), is_transactional=True)
    roll(log)
    clean_log(FS, log)
    assert offsets(log) == [0, 1, 2, 3] and log.first_dirty_offset == 2


def test_a_full_map_ends_the_round_where_it_is_full(log: Log) -> None:
    limits = CleanerLimits(dedupe_buffer_size=24 * 4, load_factor=0.75)
    for number in range(6):
        send(log, (f"k{number}", "1"), (f"k{number}", "2"))
    roll(log)
    done = clean_log(FS, log, limits=limits)
    # The map takes k0, k1 and k2; it is full at the second record of k2, which is not in it.
    assert done is not None and done.next_dirty_offset == 5
    assert kept(log) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    rounds = 1
    while clean_log(FS, log, limits=limits) is not None:
        rounds += 1
    assert kept(log) == [1, 3, 5, 7, 9, 11] and rounds <= 5


def test_a_batch_larger_than_the_buffer_is_read_whole(log: Log) -> None:
    limits = CleanerLimits(dedupe_buffer_size=2400, io_buffer_size=10)
    send(log, *((f"k{number % 5}", "v" * 10) for number in range(20)))
    roll(log)
    clean_log(FS, log, limits=limits)
    assert kept(log) == [15, 16, 17, 18, 19]


def test_small_segments_are_put_together(log: Log) -> None:
    for number in range(40):
        send(log, (f"k{number % 3}", f"{number:050}"))
    roll(log)
    before = len(log.segments)
    clean_log(FS, log)
    clean_log_again(log)
    assert before > 5 and len(log.segments) == 2 and len(kept(log)) == 3


def clean_log_again(log: Log) -> None:
    roll(log)
    clean_log(FS, log)


def test_a_damaged_batch_stops_the_cleaning_and_leaves_nothing(log: Log) -> None:
    send(log, ("a", "1"))
    roll(log)
    path = log.segments[0].path(".log")
    data = bytearray(FS.read(path))
    data[65] ^= 1
    log.segments[0].file().pwrite(bytes(data), 0)
    with pytest.raises(MalformedMessage):
        list(clean_segments(FS, request_of(log)))
    assert not [name for name in FS.list_directory(log.directory) if name.endswith(".cleaned")]


def test_a_log_that_was_truncated_meanwhile_is_not_swapped(log: Log) -> None:
    for number in range(20):
        send(log, ("k", f"{number:050}"))
    roll(log)
    log.flush(NOW_MS)
    request = request_of(log)
    events = [
        event for event in clean_segments(FS, request) if not isinstance(event, tuple) or hasattr(event, "replaced")
    ]
    log.lower_recovery_point(3)
    log.truncate_to(3, NOW_MS)
    assert log.swap_cleaned(events[0], NOW_MS) is None  # type: ignore[arg-type]
    with pytest.raises(LogChanged):
        list(clean_segments(FS, request))


def test_a_request_may_lie_in_the_past(log: Log) -> None:
    """A round that was noted before a truncation counts no more."""
    send(log, ("a", "1"))
    count = log.truncation_count
    log.lower_recovery_point(0)
    log.note_cleaned(1, count)
    assert log.first_dirty_offset is None


def test_a_round_without_dirty_records_copies_what_is_there(log: Log) -> None:
    send(log, ("a", "1"))
    roll(log)
    log.flush(NOW_MS)
    before = Path(log.directory, "00000000000000000000.log").read_bytes()
    request = replace(request_of(log), first_dirty_offset=2)
    drive(FS, log, request, clean_segments(FS, request), NOW_MS)
    assert Path(log.directory, "00000000000000000000.log").read_bytes() == before
    assert offsets(log) == [0, 1]


def test_a_part_of_which_retention_has_removed_all_segments_is_not_cleaned(log: Log) -> None:
    send(log, ("a", "1"))
    roll(log)
    send(log, ("a", "2"))
    roll(log)
    part = cleanable_part(log, 0, log.segments[1].base_offset, NOW_MS)
    assert part.first_uncleanable_offset == log.segments[1].base_offset
    limits = CleanerLimits(dedupe_buffer_size=24_000, io_buffer_size=4_096, load_factor=0.9)
    salt = bytes(SALT_SIZE)
    assert cleaning_request(log, part, limits, salt, NOW_MS).segments
    del log.segments[0]
    with pytest.raises(LogChanged):
        cleaning_request(log, part, limits, salt, NOW_MS)
