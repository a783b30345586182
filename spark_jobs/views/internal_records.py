"""The tables over internal topics (offsets, groups, transactions): the last record of each key of a partition, decoded.

The records are read as read_committed: offsets of a transaction count once it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from moldau.protocol.compiler import decode
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, value_version
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from moldau.spark_jobs.options.read_options import ReadOptions
from moldau.spark_jobs.views.latest import last_rows
from moldau.spark_jobs.views.records import SegmentReader, task_of
from moldau.spark_jobs.views.rows import Row, row_batches, time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa  # type: ignore[import-untyped]


class InternalReader(SegmentReader):
    """The reader of a table over an internal topic. `decode` makes the row of a key and a value; None for keys of other
    types.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[str],
        schema: StructType,
        decode: Callable[[bytes, bytes], Row | None],
    ) -> None:
        super().__init__(options, columns)
        self._schema = schema
        self._decode = decode

    def partitions(self) -> list[InputPartition]:
        slices = [each for task in self.plan().tasks for each in task]
        return [InputPartition(tuple(group)) for _, group in groupby(slices, lambda each: each.partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `SegmentReader.read`.

        Raises `MalformedMessage` for a record of a version that Apache Kafka 4.3.1 does not define.
        """
        task = task_of(partition)
        last: dict[bytes, bytes] = {}
        for batch in self.batches(task, ("key", "value")):
            rows = last_rows(batch)
            for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
                if value is None:
                    last.pop(key, None)
                else:
                    last[key] = value
        decoded = (self._decode(key, value) for key, value in last.items())
        return row_batches((row for row in decoded if row is not None), self._schema, self._columns)


OFFSET_KEYS: Final = (0, 1)
"""The types of keys of committed offsets; 0 is that of Kafka's first releases."""
GROUP_KEY: Final = 2


def offset_row(key: bytes, value: bytes) -> Row | None:
    """A row of `OFFSETS`; None for a key of another type. Raises `MalformedMessage`."""
    if read_prefix(key) not in OFFSET_KEYS:
        return None
    whose = decode(OffsetCommitKey, memoryview(key)[PREFIX_SIZE:], 0)
    read = decode(OffsetCommitValue, memoryview(value)[PREFIX_SIZE:], value_version(value, OffsetCommitValue))
    return (
        whose.group,
        whose.topic,
        whose.partition,
        read.offset,
        None if read.leader_epoch < 0 else read.leader_epoch,
        read.metadata,
        time_of(read.commit_timestamp),
        time_of(read.expire_timestamp),
    )


def group_row(key: bytes, value: bytes) -> Row | None:
    """A row of `GROUPS`, of a group of the classic protocol; None for a key of another type. Raises
    `MalformedMessage`."""
    if read_prefix(key) != GROUP_KEY:
        return None
    group = decode(GroupMetadataKey, memoryview(key)[PREFIX_SIZE:], 0).group
    read = decode(GroupMetadataValue, memoryview(value)[PREFIX_SIZE:], value_version(value, GroupMetadataValue))
    members = [
        {
            "memberId": each.member_id,
            "groupInstanceId": each.group_instance_id,
            "clientId": each.client_id,
            "clientHost": each.client_host,
        }
        for each in read.members
    ]
    return (
        group,
        read.protocol_type,
        read.generation,
        read.protocol,
        read.leader,
        time_of(read.current_state_timestamp),
        members,
    )


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


def rows_of(table: str) -> Callable[[bytes, bytes], Row | None]:
    """The function that makes a row of a record of an internal topic, by the name of the table."""
    return {"offsets": offset_row, "groups": group_row, "transactions": transaction_row}[table]
