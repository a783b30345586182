"""A log read in pieces: what is cut off, damaged, or of transactions."""

from __future__ import annotations

import pytest

from moldau.coordinator.group.records import CommittedOffset, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.log_reading import LogReader, RecordReader
from moldau.coordinator.shard.kinds import change_of, record_of
from moldau.protocol.control_records import ControlRecordType, encode_control_key, end_transaction_marker
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from tests.support.one_by_one import OneByOne

LAST_OFFSET_DELTA = 23
"""The position of this field in a batch."""


def commit(offset: int) -> Record:
    return record_of(OffsetChange("g", "t", 0, CommittedOffset(offset)), 0)


def marker(*, commits: bool, producer_id: int, base_offset: int) -> bytes:
    return end_transaction_marker(
        commits=commits,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=base_offset,
    )


def transactional(offset: int, producer_id: int, base_offset: int) -> bytes:
    return build_batch(
        [commit(offset)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_records_and_ends_of_transactions_come_in_the_order_of_the_log() -> None:
    log = b"".join(
        [
            transactional(1, 7, 0),
            transactional(2, 8, 1),
            marker(commits=False, producer_id=7, base_offset=2),
            build_batch([commit(3)], base_offset=3),
            marker(commits=True, producer_id=8, base_offset=4),
            build_batch(
                [Record(encode_control_key(ControlRecordType.LEADER_CHANGE), b"")], base_offset=5, is_control=True
            ),
        ]
    )
    found = LogReader(0, OneByOne()).read(log)
    assert found == [
        (OffsetChange("g", "t", 0, CommittedOffset(1), 7), 6),
        (OffsetChange("g", "t", 0, CommittedOffset(2), 8), 6),
        (TransactionEnded(7, False), 6),
        (OffsetChange("g", "t", 0, CommittedOffset(3)), 6),
        (TransactionEnded(8, True), 6),
    ]


def test_a_machine_without_transactions_reads_past_their_ends() -> None:
    log = transactional(1, 7, 0) + marker(commits=True, producer_id=7, base_offset=1)
    found = LogReader(0, RecordReader(change_of)).read(log)
    assert found == [(OffsetChange("g", "t", 0, CommittedOffset(1)), 2)]


def test_a_log_is_read_in_pieces_that_cut_and_overlap_batches() -> None:
    log = b"".join(build_batch([commit(offset)], base_offset=offset) for offset in range(5))
    size = len(log) // 5
    reader = LogReader(0, RecordReader(change_of))
    found = reader.read(log[: 2 * size + 10])
    assert reader.next_offset == 2
    found += reader.read(log[size:])
    assert [replayable.change for replayable in found] == [change_of(commit(offset)) for offset in range(5)]
    assert [replayable.end_offset for replayable in found] == [2, 2, 5, 5, 5], "the end of what was read at once"


def test_a_log_with_a_flipped_bit_is_refused() -> None:
    log = bytearray(build_batch([commit(1)]))
    log[-1] ^= 1
    with pytest.raises(MalformedMessage, match="checksum"):
        LogReader(0, RecordReader(change_of)).read(bytes(log))


def test_a_batch_whose_number_of_offsets_rotted_is_refused_and_not_skipped() -> None:
    log = bytearray(build_batch([commit(1)]) + build_batch([commit(2)], base_offset=1))
    log[LAST_OFFSET_DELTA] ^= 0x80
    with pytest.raises(MalformedMessage, match="checksum"):
        LogReader(0, RecordReader(change_of)).read(bytes(log))


def test_batches_in_the_wrong_order_are_refused() -> None:
    """No checksum covers the base offset."""
    log = b"".join(build_batch([commit(offset)], base_offset=offset) for offset in (3, 1))
    with pytest.raises(MalformedMessage, match="the batch at offset 1 follows 3"):
        LogReader(0, RecordReader(change_of)).read(log)
