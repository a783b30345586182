"""The records of `__transaction_state`, byte for byte as Apache Kafka 4.3.1 writes them."""

from __future__ import annotations

import pytest

from moldau.coordinator.transaction.records import KEY_LENGTH_MAX, TransactionChange, change_of, record_of
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
)
from moldau.protocol.compiler import encode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.records.record_frames import type_prefix
from moldau.protocol.records.transactions import TransactionLogKey

A = frozenset({("a", 0)})
SECOND = 1_795_387_000_000
"""A wall clock."""

APACHE = [
    (
        0,
        "000000000000000001a200000000ea6000ffffffff000001a205923dceffffffffffffffff",
        Transaction(418, 0, 60_000, EMPTY, 0x1A205923DCE),
    ),
    (
        0,
        "000000000000000001a200000000ea6001000000010001610000000100000000000001a205923dd4000001a205923dd4",
        Transaction(418, 0, 60_000, ONGOING, 0x1A205923DD4, A, 0x1A205923DD4),
    ),
    (
        0,
        "000000000000000001a200010000ea6003000000010001610000000100000000000001a205923ddc000001a205923dd4",
        Transaction(418, 1, 60_000, PREPARE_ABORT, 0x1A205923DDC, A, 0x1A205923DD4),
    ),
    (
        0,
        "000000000000000001a200010000ea600500000000000001a205923ddc000001a205923dd4",
        Transaction(418, 1, 60_000, COMPLETE_ABORT, 0x1A205923DDC, start_ms=0x1A205923DD4),
    ),
    (
        1,
        "000100000000000001997ffc0000ea600000000001a2058f306dffffffffffffffff0100080000000000000199",
        Transaction(409, LAST_EPOCH - 2, 60_000, EMPTY, 0x1A2058F306D, previous_producer_id=409),
    ),
    (
        1,
        "0001000000000000019b7ffe0000ea6001020261020000000000000001a2058f38bf000001a2058f38bf02000800000000000001"
        "9b02020002",
        Transaction(
            411,
            LAST_EPOCH,
            60_000,
            ONGOING,
            0x1A2058F38BF,
            A,
            0x1A2058F38BF,
            previous_producer_id=411,
            client_version=2,
        ),
    ),
    (
        1,
        "0001000000000000019b7fff0000ea6002020261020000000000000001a2058f38c0000001a2058f38bf03000800000000000001"
        "9b0108000000000000019c02020002",
        Transaction(
            411,
            EPOCH_MAX,
            60_000,
            PREPARE_COMMIT,
            0x1A2058F38C0,
            A,
            0x1A2058F38BF,
            previous_producer_id=411,
            next_producer_id=412,
            client_version=2,
        ),
    ),
    (
        1,
        "0001000000000000019c00000000ea600401000001a2058f38c0000001a2058f38bf020008000000000000019b02020002",
        Transaction(
            412,
            0,
            60_000,
            COMPLETE_COMMIT,
            0x1A2058F38C0,
            start_ms=0x1A2058F38BF,
            previous_producer_id=411,
            client_version=2,
        ),
    ),
]
"""Values that Apache Kafka 4.3.1 has written, by their version."""
KEY = bytes.fromhex("000000187265706c616365642d636f6d706c6574655f636f6d6d6974")


@pytest.mark.parametrize(("version", "value", "transaction"), APACHE)
def test_values_are_those_of_apache_kafka(version: int, value: str, transaction: Transaction) -> None:
    record = Record(KEY, bytes.fromhex(value), SECOND)
    change = TransactionChange("replaced-complete_commit", transaction)
    assert change_of(record) == change
    assert record_of(change, version, SECOND) == record


def test_version_2_of_transactions_has_the_records_of_version_1() -> None:
    change = TransactionChange("t", APACHE[-1][2])
    assert record_of(change, 2, SECOND) == record_of(change, 1, SECOND)


def test_a_tombstone() -> None:
    change = TransactionChange("replaced-complete_commit", None)
    assert record_of(change, 2, SECOND) == Record(KEY, None, SECOND)
    assert change_of(Record(KEY, None, SECOND)) == change


def test_before_version_1_what_tags_hold_is_left_out() -> None:
    transaction = APACHE[-2][2]
    read = change_of(record_of(TransactionChange("t", transaction), 0, SECOND))
    assert read is not None
    assert read.value == transaction._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)


def test_the_epoch_before_is_in_no_record() -> None:
    transaction = Transaction(7, 3, 60_000, EMPTY, SECOND, last_epoch=2)
    read = change_of(record_of(TransactionChange("t", transaction), 0, SECOND))
    assert read == TransactionChange("t", transaction._replace(last_epoch=-1))


def test_partitions_are_sorted() -> None:
    partitions = frozenset({("b", 2), ("a", 3), ("b", 1), ("a", 0)})
    change = TransactionChange("t", Transaction(7, 3, 60_000, ONGOING, SECOND, partitions, SECOND))
    record = record_of(change, 0, SECOND)
    assert change_of(record) == change
    assert record.value is not None
    assert record.value.index(b"\0\1a\0\0\0\2\0\0\0\0\0\0\0\3") < record.value.index(b"\0\1b\0\0\0\2\0\0\0\1")


def test_other_types_of_keys_are_left_to_others() -> None:
    key = type_prefix(1) + encode(TransactionLogKey(transactional_id="t"), 0)
    assert change_of(Record(key, b"", SECOND)) is None


def value_with_status(status: int) -> bytes:
    value = bytearray.fromhex(APACHE[0][1])
    value[16] = status
    return bytes(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (KEY[:-1], None),
        (KEY + b"x", None),
        (KEY, b"\0"),
        (KEY, b"\0\2" + bytes(40)),
        (KEY, b"\xff\xff" + bytes(40)),
        (KEY, bytes.fromhex(APACHE[0][1])[:-1]),
        (KEY, value_with_status(6)),
        (KEY, value_with_status(7)),
        (KEY, value_with_status(8)),
        (KEY, value_with_status(255)),
    ],
)
def test_what_is_no_record_of_transactions_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        change_of(Record(key, value, SECOND))


@pytest.mark.parametrize("length", [1, KEY_LENGTH_MAX, KEY_LENGTH_MAX + 1])
def test_a_key_is_the_same_at_each_record(length: int) -> None:
    transactional_id = "x" * length
    keys = [record_of(TransactionChange(transactional_id, None), 2, 5).key for _ in range(2)]
    assert keys == [type_prefix(0) + encode(TransactionLogKey(transactional_id=transactional_id), 0)] * 2
