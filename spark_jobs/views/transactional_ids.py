"""The table `transactions`, from `__transaction_state`: a row for each transactional id."""

from __future__ import annotations

from typing import Final

from moldau.protocol.compiler import decode
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, value_version
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from moldau.spark_jobs.views.rows import Row, time_of

TRANSACTION_KEY: Final = 0
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's names, by the status in a record."""


def transaction_row(key: bytes, value: bytes) -> Row | None:
    """A row of `TRANSACTIONS`; None for a key of another type. Raises `MalformedMessage`."""
    if read_prefix(key) != TRANSACTION_KEY:
        return None
    transactional_id = decode(TransactionLogKey, memoryview(key)[PREFIX_SIZE:], 0).transactional_id
    read = decode(TransactionLogValue, memoryview(value)[PREFIX_SIZE:], value_version(value, TransactionLogValue))
    status = read.transaction_status
    return (
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        STATES[status] if 0 <= status < len(STATES) else f"status {status}",
        read.transaction_timeout_ms,
        [
            {"topic": each.topic, "partition": partition}
            for each in read.transaction_partitions or ()
            for partition in each.partition_ids
        ],
        time_of(read.transaction_start_timestamp_ms),
        time_of(read.transaction_last_update_timestamp_ms),
    )
