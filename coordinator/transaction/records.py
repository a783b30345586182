"""The records of `__transaction_state`, in the versions that Apache Kafka 4.3.1 reads and writes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.transaction.events import TopicPartition
from moldau.coordinator.transaction.transaction import DEAD, EMPTY, PREPARE_EPOCH_FENCE, Transaction, TransactionState
from moldau.protocol.compiler import decode
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, type_prefix, value_version
from moldau.protocol.records.stored_structs import encode_stored
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue, TransactionPartitions

TRANSACTION_KEY: Final = 0
FLEXIBLE_VALUE_VERSION: Final = 1
"""The version of values with tagged fields, written from transaction.version 1 on."""
KEYS_MAX: Final = 4_096
"""The number of encoded keys of records that are cached, because each transaction has three or four records."""
KEY_LENGTH_MAX: Final = 256
"""The longest transactional id (characters) with which a key is cached."""
LISTS_MAX: Final = 1_024
"""The number of sets of partitions whose encoded list is cached, because most producers write to the same partitions in
every transaction."""
LIST_LENGTH_MAX: Final = 16
"""The most partitions that a cached list may have."""
STATES: Final = {state.value: state for state in TransactionState if state not in (DEAD, PREPARE_EPOCH_FENCE)}
"""The states that a record may have, by their status code."""


class TransactionChange(NamedTuple):
    """The change that one record makes. A change without a transaction removes the transactional id, which has
    expired."""

    transactional_id: str
    value: Transaction | None


def record_of(change: TransactionChange, transaction_version: int, wall_ms: int) -> Record:
    """The record that stores a change. The finalized level of transaction.version decides the version of its value."""
    transactional_id = change.transactional_id
    key = _remembered_key(transactional_id) if len(transactional_id) <= KEY_LENGTH_MAX else key_of(transactional_id)
    if change.value is None:
        return Record(key, None, wall_ms)
    version = min(transaction_version, FLEXIBLE_VALUE_VERSION)
    return Record(key, type_prefix(version) + encode_stored(value_of(change.value, version), version), wall_ms)


def key_of(transactional_id: str) -> bytes:
    return type_prefix(TRANSACTION_KEY) + encode_stored(TransactionLogKey(transactional_id=transactional_id), 0)


_remembered_key: Final = lru_cache(KEYS_MAX)(key_of)


def value_of(transaction: Transaction, version: int) -> TransactionLogValue:
    # DIVERGES: at transaction.version 0, Apache answers a request of protocol 2 with UNSUPPORTED_VERSION, and each
    # later one for the transactional id with CONCURRENT_TRANSACTIONS: version 0 has no place for the protocol.
    has_tags = version >= FLEXIBLE_VALUE_VERSION
    partitions = transaction.partitions
    listed = _remembered_list if len(partitions) <= LIST_LENGTH_MAX else grouped_by_topic
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id if has_tags else -1,
        next_producer_id=transaction.next_producer_id if has_tags else -1,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=None if transaction.state is EMPTY else listed(partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version if has_tags else 0,
    )


def grouped_by_topic(partitions: frozenset[TopicPartition]) -> list[TransactionPartitions]:
    """The partitions grouped by topic, sorted, so that equal transactions have equal records."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


_remembered_list: Final = lru_cache(LISTS_MAX)(grouped_by_topic)


def change_of(record: Record) -> TransactionChange | None:
    """Decode the change that a record makes; None if the type of its key is not a transaction's.

    Raises `MalformedMessage` for a value of a version or a status that Apache Kafka 4.3.1 does not write.
    """
    if record.key is None:
        raise MalformedMessage("a record without a key")
    if read_prefix(record.key) != TRANSACTION_KEY:
        return None
    transactional_id = decode(TransactionLogKey, memoryview(record.key)[PREFIX_SIZE:], 0).transactional_id
    return TransactionChange(transactional_id, None if record.value is None else read_value(record.value))


def read_value(value: bytes) -> Transaction:
    version = value_version(value, TransactionLogValue)
    read = decode(TransactionLogValue, memoryview(value)[PREFIX_SIZE:], version)
    state = STATES.get(read.transaction_status)
    if state is None:
        raise MalformedMessage(f"transaction status {read.transaction_status}")
    topics = read.transaction_partitions or ()
    return Transaction(
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        updated_ms=read.transaction_last_update_timestamp_ms,
        partitions=frozenset((topic.topic, index) for topic in topics for index in topic.partition_ids),
        start_ms=read.transaction_start_timestamp_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        client_version=read.client_transaction_version,
    )


class TransactionRecordReader(RecordReader[TransactionChange]):
    """Decodes the records of one partition of `__transaction_state` when its coordinator starts.

    A transaction leaves at least three records, and the last record of a transactional id has its whole state. So in
    each piece of the log only the last record of each transactional id is decoded.
    """

    def __init__(self) -> None:
        super().__init__(change_of)
        self._last: dict[bytes, Record] = {}
        """The last record of each transactional id in the piece, by the record's key."""

    def read_record(self, record: Record) -> None:
        if record.key is None:
            raise MalformedMessage("a record without a key")
        self._last[record.key] = record

    def take_changes(self) -> list[TransactionChange]:
        for record in self._last.values():
            super().read_record(record)
        self._last.clear()
        return super().take_changes()
