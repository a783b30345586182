"""For any history and any order, exactly the records of the order are gone, and everything else is as it was.

A history appends batches of plain, idempotent and transactional producers with every codec, ends transactions, rolls
and compacts. After the order is carried out, the log is compared with what it held before: batch by batch, and by its
producers, transactions and indexes, before and after it is opened again.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run, new_erase_order, packed_runs
from moldau.protocol.primitives import MalformedMessage, crc32c, varint
from moldau.protocol.record_batch import TimestampType
from moldau.storage.erasure.erasing import erase_request, runs_overlap
from moldau.storage.erasure.kept_records import kept_records
from moldau.storage.erasure.receipts import OrderReceipt, read_or_new_receipt
from moldau.storage.files.log_paths import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, offset_name, receipt_path
from moldau.storage.files.port import write_atomically
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import (
    NOW_MS,
    Stored,
    clean_log,
    committed,
    end_transaction,
    send,
    stored,
)
from tests.unit.storage.erasure.orders import PREDICATE_HASH, carry_out, runs_from, send_order

DIRECTORY = "/data/t-0"
FIRST_TRANSACTIONAL = 10

pairs = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=5)
appends = st.tuples(st.just("append"), st.sampled_from([-1, 1, 2, 10, 11]), pairs, st.sampled_from(list(Codec)))
ends = st.tuples(st.just("end"), st.sampled_from([10, 11]), st.booleans())
histories = st.lists(
    st.one_of(appends, appends, appends, ends, st.tuples(st.just("roll")), st.tuples(st.just("compact"))),
    min_size=1,
    max_size=30,
)


class Story:
    """A log under a history."""

    def __init__(self, *, is_compacted: bool, timestamp_type: TimestampType = TimestampType.CREATE_TIME) -> None:
        self.disk = SimulatedDisk()
        self.config = LogConfig(
            segment_bytes=900,
            index_interval_bytes=100,
            cleanup_policy=("compact",) if is_compacted else ("delete",),
            message_timestamp_type=timestamp_type,
        )
        self.log = self.opened(0, clean=True)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.count = 0

    def opened(self, recovery_point: int, *, clean: bool) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            now_ms=NOW_MS,
            cleaned_end_offset=0 if self.config.is_compacted else None,
        )

    def reopened(self, *, clean: bool) -> Log:
        self.log.close(NOW_MS, clean=clean)
        if not clean:
            self.disk.end_process()
        return self.opened(self.log.recovery_point, clean=clean)

    def append(self, producer: int, chosen: list[tuple[str, bool]], codec: Codec) -> None:
        is_transactional = producer >= FIRST_TRANSACTIONAL
        if is_transactional:
            self.open.add(producer)
        self.count += 1
        sequence = self.sequences.get(producer, 0)
        batch = [(key, None if is_tombstone else f"value {self.count}") for key, is_tombstone in chosen]
        self.sequences[producer] = sequence + len(batch)
        identity = (producer, 0, sequence) if producer >= 0 else (-1, -1, -1)
        timestamp = NOW_MS - 7 * (self.count % 5)
        send(
            self.log,
            *batch,
            producer=identity,
            codec=codec,
            is_transactional=is_transactional,
            timestamp=timestamp,
        )

    def end(self, producer: int, commits: bool) -> None:
        if producer in self.open:
            self.open.discard(producer)
            end_transaction(self.log, producer, 0, commits=commits)

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def compact(self) -> None:
        if self.config.is_compacted:
            clean_log(self.disk, self.log)


def assert_exactly_gone(before: list[Stored], after: list[Stored], named: set[int]) -> None:
    """Each batch lost the named records and nothing else; a batch without one is the same bytes."""
    assert [each.header.base_offset for each in after] == [each.header.base_offset for each in before]
    for old, new in zip(before, after, strict=True):
        left = [each for each in old.records if old.header.is_control or each.offset not in named]
        assert new.records == left
        if len(left) == len(old.records):
            assert new.data == old.data
            continue
        for name in ("last_offset", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch"):
            assert getattr(new.header, name) == getattr(old.header, name)
        assert new.header.is_transactional == old.header.is_transactional
        assert new.header.timestamp_type is old.header.timestamp_type
        if left:
            assert new.header.codec is old.header.codec
            if old.header.timestamp_type is TimestampType.CREATE_TIME:
                assert new.header.max_timestamp == max(each.timestamp for each in left)


def producers_of(log: Log) -> dict[int, tuple[int, int, int]]:
    return {
        producer_id: (entry.producer_epoch, entry.last_sequence, entry.open_transaction_offset)
        for producer_id, entry in log.producers.entries.items()
    }


def assert_indexes_fit(log: Log) -> None:
    """A read from each offset begins with the batch that holds it, and a lookup by time finds what a scan finds."""
    batches = stored(log)
    for offset in range(log.end_offset):
        expected = next(each for each in batches if each.header.last_offset >= offset)
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead)
        assert read.slice is not None
        assert read.slice.read().startswith(expected.data)
    records = [record for each in batches for record in each.records]
    for timestamp in {record.timestamp for record in records}:
        found = log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found.offset == next(each.offset for each in records if each.timestamp >= timestamp)


def file_of(disk: SimulatedDisk, base_offset: int) -> bytes:
    return disk.read(f"{DIRECTORY}/{offset_name(base_offset, LOG_SUFFIX)}")


def assert_receipt(disk: SimulatedDisk, receipt: OrderReceipt, named: set[int], before: list[Stored]) -> None:
    expected = {each.offset for batch in before if not batch.header.is_control for each in batch.records} & named
    assert [Run(*run) for each in receipt.segments for run in each.erased] == [
        run for each in receipt.segments for run in runs_from(expected & offsets_of(each.erased))
    ]
    assert {offset for each in receipt.segments for offset in offsets_of(each.erased)} == expected
    assert receipt.records_erased == len(expected)
    for each in receipt.segments:
        data = file_of(disk, each.base_offset)
        assert (f"{crc32c(data, 0):08x}", len(data)) == (each.crc_after, each.size_after)


def offsets_of(runs: list[list[int]]) -> set[int]:
    return {offset for first, last in runs for offset in range(first, last + 1)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories, st.booleans(), st.sets(st.integers(0, 90), min_size=1), st.sampled_from([10, 500, 1 << 20]))
def test_exactly_the_named_records_are_gone(
    history: list[tuple[object, ...]], is_compacted: bool, chosen: set[int], io_buffer_size: int
) -> None:
    story = Story(is_compacted=is_compacted)
    for name, *arguments in history:
        getattr(story, str(name))(*arguments)
    log = story.log
    named = {offset for offset in chosen if offset < log.end_offset} or {0}
    order_offset = send_order(log, runs_from(named))
    before, producers = stored(log), producers_of(log)
    aborted = log.aborted_transactions(0, log.end_offset)
    seen = [each for each in committed(log) if each.offset not in named]
    receipt = carry_out(story.disk, log, order_offset, io_buffer_size=io_buffer_size)
    assert_receipt(story.disk, receipt, named, before)
    for clean in (None, True, False):
        log = story.log = story.reopened(clean=clean) if clean is not None else log
        assert_exactly_gone(before, stored(log), named)
        assert producers_of(log) == producers
        assert log.aborted_transactions(0, log.end_offset) == aborted
        assert committed(log) == seen
        assert log.erase_orders.offsets == []
        assert_indexes_fit(log)
    remove_derived_files(story.disk, log)
    story.log = log = story.opened(log.recovery_point, clean=True)
    assert producers_of(log) == producers
    if not is_compacted:  # Compaction removes the first batches of an aborted transaction: its index alone has them.
        assert log.aborted_transactions(0, log.end_offset) == aborted
    again = carry_out(story.disk, log, send_order(log, runs_from(named), number=2))
    assert not again.segments


def remove_derived_files(disk: SimulatedDisk, log: Log) -> None:
    """Leave a start nothing but the batches."""
    log.close(NOW_MS, clean=True)
    for name in disk.list_directory(DIRECTORY):
        if name.endswith((*SEGMENT_SUFFIXES[1:], SNAPSHOT_SUFFIX)):
            disk.unlink(f"{DIRECTORY}/{name}")


def test_a_batch_with_log_append_time_keeps_it() -> None:
    story = Story(is_compacted=False, timestamp_type=TimestampType.LOG_APPEND_TIME)
    send(story.log, ("a", "1"), ("b", "2"))
    order_offset = send_order(story.log, [Run(1, 1)])
    before = stored(story.log)
    carry_out(story.disk, story.log, order_offset)
    after = stored(story.log)
    assert_exactly_gone(before, after, {1})
    assert after[0].header.max_timestamp == before[0].header.max_timestamp == NOW_MS


def test_a_segment_without_a_named_record_is_not_rewritten() -> None:
    story = Story(is_compacted=False)
    for key in "abcd":
        send(story.log, (key, "1"))
        story.roll()
    receipt = carry_out(story.disk, story.log, send_order(story.log, [Run(2, 2)]))
    assert [each.base_offset for each in receipt.segments] == [2]


def test_the_active_segment_is_rolled_before() -> None:
    story = Story(is_compacted=False)
    send(story.log, ("a", "1"))
    with pytest.raises(AssertionError, match="rolled first"):
        erase_request(story.log, [packed_runs([Run(0, 0)])], 0, 0, 100)


@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 5))
def test_runs_are_searched_as_a_set_of_offsets(named: set[int], first: int, count: int) -> None:
    assert runs_overlap(runs_from(named), first, first + count) == bool(named & set(range(first, first + count)))


timed = st.lists(st.tuples(st.integers(0, 40), st.integers(-(1 << 40), 1 << 40)), max_size=12)


@given(timed, st.sets(st.integers(100, 140)))
def test_records_stay_unless_their_offset_is_named(records: list[tuple[int, int]], named: set[int]) -> None:
    """In whatever order the offsets of a batch are."""
    encoded = [encoded_record(delta, timestamp) for delta, timestamp in records]
    kept = kept_records(b"".join(encoded), 100, runs_from(named))
    stays = [100 + delta not in named for delta, _ in records]
    assert b"".join(kept.parts) == b"".join(each for each, stay in zip(encoded, stays, strict=True) if stay)
    assert kept.records_count == sum(stays)
    times = [timestamp for (_, timestamp), stay in zip(records, stays, strict=True) if stay]
    assert kept.max_timestamp_delta == max(times, default=None)
    assert kept.erased == [100 + delta for (delta, _), stay in zip(records, stays, strict=True) if not stay]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_record_that_is_cut_short_is_damage(cut: int) -> None:
    whole = encoded_record(1, 1 << 30)
    with pytest.raises(MalformedMessage, match="past the end of its batch"):
        kept_records(whole + whole[:cut], 100, [])


def encoded_record(delta: int, timestamp_delta: int) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(delta) + varint(-1) + varint(1) + b"v" + varint(0)
    return varint(len(body)) + body


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"{}", b'{"segments": 1}', b'{"segments": [], "tier": 1}'])
def test_a_damaged_receipt_is_replaced(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    order = new_erase_order(b"o" * 16, PREDICATE_HASH, [Run(0, 0)])
    write_atomically(disk, receipt_path("/data", order.order_id.hex()), content)
    receipt = read_or_new_receipt(disk, "/data", order, 7)
    assert (receipt.order_id, receipt.offset, receipt.segments) == (order.order_id.hex(), 7, [])
