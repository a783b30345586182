"""What a capture takes of a log: a run of offsets between two times, sampled, masked, with the ends of transactions."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from moldau.backup.capture.captured_log import CaptureFilter, LogCapture
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import ControlRecordType, control_record_type, end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.tables.values.masks import Masks, mask_rule

NO_MASKS = Masks((), "orders")


def batch(offset: int, *times: int, producer: int = -1, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(b"k%d" % (offset + place), b'{"n": %d}' % time, time) for place, time in enumerate(times)]
    if producer < 0:
        return build_batch(records, base_offset=offset, codec=codec)
    return build_batch(
        records,
        base_offset=offset,
        codec=codec,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer: int, *, commits: bool = True) -> bytes:
    return end_transaction_marker(
        commits=commits, producer_id=producer, producer_epoch=0, coordinator_epoch=3, timestamp=99, base_offset=offset
    )


def captured(window: CaptureFilter, log: Iterable[bytes], end_offset: int = 100) -> tuple[list[bytes], int]:
    """What is taken of a log, and the number of batches that were read for it."""
    capture, taken, read = LogCapture(window), [], 0
    for stored in log:
        if capture.needs_no_more_batches:
            break
        read += 1
        ((_, header),) = iterate_batches(stored)
        kept = capture.captured_batch(header, stored)
        taken += [] if kept is None else [kept]
    return [*taken, *capture.abort_markers(end_offset)], read


def offsets(batches: Iterable[bytes]) -> list[int]:
    return [record.offset for each in batches for record in records_of(each)]


def kinds(batches: Iterable[bytes]) -> list[ControlRecordType | None]:
    records = [next(iter(records_of(each))) for each in batches if next(iterate_batches(each))[1].is_control]
    return [control_record_type(record.key) for record in records]


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"),
    [
        (-1, 1 << 62, [0, 1, 2, 3, 4, 5]),
        (20, 1 << 62, [1, 2, 3, 4, 5]),
        (21, 40, [3]),
        (20, 30, [1, 2]),
        (60, 70, []),
        (-1, 10, []),
    ],
)
def test_the_window_is_the_run_of_offsets_that_list_offsets_would_give(
    from_ms: int, to_ms: int, expected: list[int]
) -> None:
    log = [batch(0, 10, 20), batch(2, 15, 30), batch(4, 40), batch(5, 50)]
    assert offsets(captured(CaptureFilter(from_ms=from_ms, to_ms=to_ms, masks=NO_MASKS), log)[0]) == expected


def test_a_log_is_read_no_further_than_the_window() -> None:
    log = [batch(offset, offset) for offset in range(10)]
    assert captured(CaptureFilter(to_ms=4, masks=NO_MASKS), log)[1] == 5


def test_whole_batches_stay_byte_for_byte_and_parts_keep_offsets_times_and_producers() -> None:
    whole, part = batch(7, 20, 21, codec=Codec.ZSTD), batch(4, 5, 20, 30, producer=8, codec=Codec.GZIP)
    first, second = captured(CaptureFilter(from_ms=20, masks=NO_MASKS), [part, whole, marker(9, 8)])[0][:2]
    assert second == whole
    ((_, header),) = iterate_batches(first)
    assert (header.base_offset, header.last_offset, header.producer_id, header.codec) == (4, 6, 8, Codec.GZIP)
    assert [(record.offset, record.timestamp) for record in records_of(first)] == [(5, 20), (6, 30)]


def test_a_transaction_that_ends_behind_the_window_keeps_its_marker() -> None:
    log = [batch(0, 10, producer=8), batch(1, 50), batch(2, 51, producer=9), marker(3, 9), marker(4, 8), marker(5, 8)]
    taken, read = captured(CaptureFilter(to_ms=50, masks=NO_MASKS), log)
    assert (offsets(taken), read, kinds(taken)) == ([0, 4], 5, [ControlRecordType.COMMIT])
    assert taken[1] == marker(4, 8)


def test_a_transaction_without_an_end_is_aborted_behind_the_log() -> None:
    taken, _ = captured(CaptureFilter(masks=NO_MASKS), [batch(0, 10, producer=8), batch(1, 11, producer=9)], 2)
    assert (offsets(taken), kinds(taken)) == ([0, 1, 2, 3], [ControlRecordType.ABORT] * 2)


def test_a_marker_of_records_that_were_not_taken_is_left_out() -> None:
    log = [batch(0, 10, producer=8), marker(1, 8), batch(2, 20)]
    assert offsets(captured(CaptureFilter(from_ms=20, masks=NO_MASKS), log)[0]) == [2]


def test_a_sample_has_the_same_keys_everywhere() -> None:
    def keys(offset: int) -> set[bytes | None]:
        log = [build_batch([Record(b"%d" % key, b"v", 1) for key in range(1000)], base_offset=offset)]
        return {
            record.key
            for each in captured(CaptureFilter(sample_ratio=0.1, masks=NO_MASKS), log)[0]
            for record in records_of(each)
        }

    assert keys(0) == keys(77)
    assert 60 < len(keys(0)) < 140


def test_masks_change_records_and_no_offset() -> None:
    masks = Masks([mask_rule("orders:value.n"), mask_rule("orders:key")], "orders")
    (taken,) = captured(CaptureFilter(masks=masks), [batch(3, 10, 20, codec=Codec.ZSTD)])[0]
    found = list(records_of(taken))
    assert [(each.offset, each.key, json.loads(each.value or b"")) for each in found] == [
        (3, b"***", {"n": "***"}),
        (4, b"***", {"n": "***"}),
    ]
    assert [each.timestamp for each in found] == [10, 20]


def test_append_times_stay() -> None:
    stored = build_batch([Record(b"k", b"v", 1), Record(b"l", b"w", 2)], log_append_time_ms=70)
    taken, _ = captured(CaptureFilter(from_ms=60, masks=Masks([mask_rule("t:key")], "t")), [stored])
    assert [record.timestamp for record in records_of(taken[0])] == [70, 70]
