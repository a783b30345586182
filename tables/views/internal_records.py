"""The tables over internal topics (offsets, groups, transactions): the last record of each key of a partition, decoded.

Only committed records are read, so the offsets of a transaction count once it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from moldau.protocol.compiler import decode
from moldau.protocol.records import consumer_groups, share_groups, streams_groups
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import (
    PREFIX_SIZE,
    DeclaredRecord,
    declared_records,
    read_prefix,
    value_version,
)
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from moldau.tables.options.read_options import TopicSelection
from moldau.tables.views.latest import last_rows
from moldau.tables.views.records import RecordsReader
from moldau.tables.views.rows import Row, row_batches, time_of
from moldau.tables.views.schemas import arrow_schema, table_columns
from moldau.tables.views.share_offsets import SHARE_STATE, InternalRecord, share_offset_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.origins.port import Slice, Task


class InternalReader(RecordsReader):
    """The reader of a table over an internal topic, with one task for each partition."""

    def tasks(self) -> list[Task]:
        slices = [each for task in self.plan().tasks for each in task]
        return [tuple(group) for _, group in groupby(slices, lambda each: each.partition)]

    def read_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises what `RecordsReader.read_task` raises, and `MalformedMessage` for a record
        of a version that Apache Kafka 4.3.1 does not define."""
        last: dict[bytes, bytes] = {}
        for batch in self.batches(task, ("key", "value")):
            rows = last_rows(batch)
            for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
                if value is None:
                    last.pop(key, None)
                else:
                    last[key] = value
        rows, schema = rows_of(self._options.table, last), arrow_schema(table_columns(self._options))
        return row_batches(rows, schema, self._columns)


class OffsetsReader(InternalReader):
    """The reader of the table `offsets`: committed offsets, and in a further task the start offsets of share groups."""

    def tasks(self) -> list[Task]:
        committed = super().tasks()
        share = self._share_slices()
        return [*committed, (*share, *(each for task in committed for each in task))] if share else committed

    def read_task(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises what `InternalReader.read_task` raises."""
        if not task or task[0].topic != SHARE_STATE:
            return super().read_task(task)
        states = [each for each in task if each.topic == SHARE_STATE]
        groups = [each for each in task if each.topic != SHARE_STATE]
        rows = share_offset_rows(self._records(states), self._records(groups))
        return row_batches(rows, arrow_schema(table_columns(self._options)), self._columns)

    def _share_slices(self) -> list[Slice]:
        """Return all slices of `__share_group_state`, the topic with the state of share groups.

        Returns none if the topic does not exist, because no share group has read. Returns none also if the options
        choose a start, an end or a snapshot, because their offsets are those of another topic.
        """
        options = self._options
        if options.snapshot is not None or options.starting != "earliest" or options.ending != "latest":
            return []
        selection = TopicSelection(topics=(SHARE_STATE,), is_optional=True)
        reader = RecordsReader(replace(options, subscription=selection), ("key", "value"))
        return [each for task in reader.plan().tasks for each in task]

    def _records(self, slices: Sequence[Slice]) -> Iterator[InternalRecord]:
        for batch in self.batches(tuple(slices), ("key", "value", "timestamp")):
            keys, values, times = (batch.column(name) for name in ("key", "value", "timestamp"))
            times_us = times.cast("int64").to_pylist()
            for key, value, time_us in zip(keys.to_pylist(), values.to_pylist(), times_us, strict=True):
                yield InternalRecord(key, value, time_us // 1000)


OFFSET_KEYS: Final = (0, 1)
"""The key types of records with committed offsets; 0 is that of Kafka's first releases."""
GROUP_KEY: Final = 2


def offset_row(key: bytes, value: bytes) -> Row | None:
    """Make a row of the table `offsets`. Return None for a key of another type. Raises `MalformedMessage`."""
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


GROUP_TYPES: Final = {
    number: declared
    for module in (consumer_groups, share_groups, streams_groups)
    for number, declared in declared_records(module).items()
    if declared.name.endswith(("GroupMetadata", "MemberMetadata"))
}
"""The record types of groups, and of their members, of the kinds newer than the classic one; by number."""


@dataclass(slots=True)
class _Group:
    """A group of one of the newer kinds, as its records describe it."""

    type: str
    """The type of the group, which is also its protocol type in ListGroups."""
    epoch: int | None = None
    """The group epoch. None if only records of members exist, and no record of the group."""
    members: list[dict[str, str | None]] = field(default_factory=list)


def group_rows(last: Mapping[bytes, bytes]) -> Iterator[Row]:
    """Make the rows of the table `groups`, for groups of all kinds, from the last records by key. Raises
    `MalformedMessage`."""
    groups: dict[str, _Group] = {}
    classic: set[str] = set()
    committed: dict[str, None] = {}
    for key, value in last.items():
        number = read_prefix(key)
        if number == GROUP_KEY:
            row = classic_group_row(key, value)
            classic.add(str(row[0]))
            yield row
        elif number in OFFSET_KEYS:
            committed[decode(OffsetCommitKey, memoryview(key)[PREFIX_SIZE:], 0).group] = None
        elif number in GROUP_TYPES:
            _describe(groups, GROUP_TYPES[number], key, value)
    for group_id, group in groups.items():
        if group.epoch is not None:
            yield (group_id, group.type, group.type, group.epoch, None, None, None, group.members)
    for group_id in committed:
        # Its members were never in the group, as Flink's are: ListGroups has it too, as an empty one.
        if group_id not in classic and group_id not in groups:
            yield (group_id, "classic", "", 0, None, None, None, [])


def _describe(groups: dict[str, _Group], declared: DeclaredRecord, key: bytes, value: bytes) -> None:
    """Note the record of a group or of a member in `groups`."""
    whose: Any = decode(declared.key, memoryview(key)[PREFIX_SIZE:], 0)
    read: Any = decode(declared.value, memoryview(value)[PREFIX_SIZE:], value_version(value, declared.value))
    group = groups.setdefault(whose.group_id, _Group(declared.name.partition("Group")[0].lower()))
    if declared.name.endswith("GroupMetadata"):
        group.epoch = read.epoch
        return
    group.members.append(
        {
            "memberId": whose.member_id,
            "groupInstanceId": getattr(read, "instance_id", None),  # A member of a share group has none.
            "clientId": read.client_id,
            "clientHost": read.client_host,
        }
    )


def classic_group_row(key: bytes, value: bytes) -> Row:
    """Make the row of a group of the classic protocol in the table `groups`. Raises `MalformedMessage`."""
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
        "classic",
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
"""Kafka's names of the states of a transaction. The index is the status in a record."""


def transaction_row(key: bytes, value: bytes) -> Row | None:
    """Make a row of the table `transactions`. Return None for a key of another type. Raises `MalformedMessage`."""
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


def rows_of_each(row_of: Callable[[bytes, bytes], Row | None], last: Mapping[bytes, bytes]) -> Iterator[Row]:
    """Yield the rows of a table in which each record makes at most one row."""
    found = (row_of(key, value) for key, value in last.items())
    return (row for row in found if row is not None)


def rows_of(table: str, last: Mapping[bytes, bytes]) -> Iterable[Row]:
    """Make the rows of a table from the last records of a partition, by key. Raises `MalformedMessage`."""
    if table == "groups":
        return group_rows(last)
    return rows_of_each({"offsets": offset_row, "transactions": transaction_row}[table], last)
