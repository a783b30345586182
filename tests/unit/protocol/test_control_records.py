"""Control records say what they are in their keys."""

from __future__ import annotations

import pytest

from moldau.protocol.control_records import (
    ControlRecordType,
    control_record_type,
    coordinator_epoch_of,
    encode_control_key,
    end_transaction_marker,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import crc_is_valid, parse_header
from moldau.protocol.record_reader import records_of


@pytest.mark.parametrize("kind", ControlRecordType)
def test_a_key_goes_round(kind: ControlRecordType) -> None:
    assert encode_control_key(kind) == b"\0\0\0" + bytes([kind])
    assert control_record_type(memoryview(encode_control_key(kind))) is kind


def test_the_types_of_later_releases_are_ignored() -> None:
    assert control_record_type(b"\0\0\0\x07") is None
    assert control_record_type(b"\0\x01\0\x01and more") is ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_key_that_says_nothing_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        control_record_type(key)


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_a_transaction_is_a_batch_of_one_marker(commits: bool) -> None:
    batch = end_transaction_marker(
        commits=commits, producer_id=7, producer_epoch=3, coordinator_epoch=11, timestamp=5, base_offset=40
    )
    header = parse_header(batch)
    assert crc_is_valid(batch, 0, header) and header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    (marker,) = records_of(batch)
    assert control_record_type(marker.key) is (ControlRecordType.COMMIT if commits else ControlRecordType.ABORT)
    assert (marker.offset, marker.timestamp, marker.value) == (40, 5, bytes.fromhex("00000000000b"))
    assert coordinator_epoch_of(marker.value) == 11


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_a_marker_cut_short_is_malformed(value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        coordinator_epoch_of(value)
