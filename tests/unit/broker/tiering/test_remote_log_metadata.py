"""The records of the metadata topic are decoded only where they are whole and in order."""

from __future__ import annotations

import pytest

from moldau.broker.tiering.remote_log_metadata import decode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch

LAST_OFFSET_DELTA = 23
"""The position of this field in a batch."""


def stored(*offsets: int) -> bytearray:
    record = Record(value=b"unreadable", timestamp=0)
    return bytearray(b"".join(build_batch([record], base_offset=offset) for offset in offsets))


def test_a_batch_whose_number_of_offsets_rotted_is_refused_and_not_skipped() -> None:
    data = stored(0, 1)
    data[LAST_OFFSET_DELTA] ^= 0x80
    with pytest.raises(MalformedMessage, match="checksum"):
        decode(data, 0)


def test_batches_in_the_wrong_order_are_refused() -> None:
    """No checksum covers the base offset."""
    with pytest.raises(MalformedMessage, match="the batch at offset 1 follows offset 3"):
        decode(stored(3, 1), 0)


def test_the_first_batch_may_have_been_read_before() -> None:
    changes, next_offset, unreadable = decode(stored(4, 5), 5)
    assert (changes, next_offset, [offset for offset, _ in unreadable]) == ([], 6, [5])
