"""The records of `__share_group_state`, byte for byte as Apache Kafka 4.3.1 writes them."""

from __future__ import annotations

import pytest

from moldau.coordinator.share_coordinator.records import ShareStateChange, change_of, record_of
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch, StateUpdate
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")
BATCHES = (StateBatch(8, 9, 2, 1), StateBatch(10, 12, 0, 2))
SNAPSHOT_KEY = "00000001670000000000000001000000000000000200000003"
FIRST_SNAPSHOT_KEY = "00000001670000000000000001000000000000000200000000"

APACHE = [
    (
        SNAPSHOT_KEY,
        "0000000000030000000400000005000000000000000"
        "6000001a2056784c0000001a2056784c1030000000000000008000000000000000902000100000000000000000a"
        "000000000000000c0000020001000400000007",
        ShareStateChange(
            ShareKey("g", TOPIC_ID, 3), ShareState(3, 4, 5, 6, 7, BATCHES, 1_795_387_000_000, 1_795_387_000_001)
        ),
    ),
    (
        "0001" + SNAPSHOT_KEY[4:],
        "000000000003000000050000000000000006030000000000000008000000000000000902000100000000000000000a"
        "000000000000000c0000020001000400000007",
        ShareStateChange(ShareKey("g", TOPIC_ID, 3), StateUpdate(3, 5, 6, 7, BATCHES)),
    ),
    (
        FIRST_SNAPSHOT_KEY,
        "0000000000000000000000000000ffffffffffffffff000000000000000000000000000000000100",
        ShareStateChange(ShareKey("g", TOPIC_ID, 0), ShareState(0, 0, 0, -1, -1)),
    ),
    (
        "0001" + FIRST_SNAPSHOT_KEY[4:],
        "00000000000000000000ffffffffffffffff0100",
        ShareStateChange(ShareKey("g", TOPIC_ID, 0), StateUpdate(0, 0, -1, -1)),
    ),
    (SNAPSHOT_KEY, None, ShareStateChange(ShareKey("g", TOPIC_ID, 3), None)),
]


@pytest.mark.parametrize(("key", "value", "change"), APACHE)
def test_records_are_those_of_apache_kafka(key: str, value: str | None, change: ShareStateChange) -> None:
    record = record_of(change, 7)
    assert record.key is not None and record.key.hex() == key
    assert (None if record.value is None else record.value.hex()) == value
    assert change_of(record._replace(offset=41)) == change._replace(offset=41)


def test_a_key_of_another_type_is_ignored() -> None:
    assert change_of(Record(b"\x00\x02", b"")) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(None, b""),
        Record(b"\x00", b""),
        Record(bytes.fromhex(SNAPSHOT_KEY)[:-1], None),
        Record(bytes.fromhex("0001" + SNAPSHOT_KEY[4:]), None),
        Record(bytes.fromhex(SNAPSHOT_KEY), b"\x00\x01"),
    ],
)
def test_a_record_that_is_malformed_is_refused(record: Record) -> None:
    with pytest.raises(MalformedMessage):
        change_of(record)
