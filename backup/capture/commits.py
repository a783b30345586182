"""Collects the committed offsets of groups for a capture: the offsets at the start of the time window, and the later
commits in the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.protocol.compiler import decode, encode
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.records.record_frames import PREFIX_SIZE, read_prefix, type_prefix, value_version

OFFSET_COMMIT_KEY_VERSIONS = (0, 1)
"""The versions of the keys of committed offsets; 0 is the version of Kafka's first releases."""
OFFSET_KEY, OFFSET_VALUE_VERSION = 1, 3


class CommittedGroupOffset(NamedTuple):
    """An offset that a group committed, with the time of the commit."""

    time_ms: int
    group: str
    topic: str
    partition: int
    offset: int


class GroupCommitCollector:
    """Collects the committed offsets of groups from the batches of `__consumer_offsets`.

    The caller passes the batches of one partition after another, in order. The offsets of a transaction count when its
    commit marker is read. A tombstone of an offset removes it.
    """

    def __init__(self, topics: frozenset[str], from_ms: int, to_ms: int) -> None:
        self._topics = topics
        self._from_ms = from_ms
        self._to_ms = to_ms
        self._positions: dict[tuple[str, str, int], int] = {}
        self._pending: dict[int, list[Record]] = {}
        self.commits_in_window: list[CommittedGroupOffset] = []
        """The commits within the time window, in the order of the log. The partitions of `__consumer_offsets` follow
        one another.
        """

    def add_batch(self, header: BatchHeader, batch: BytesLike) -> None:
        """Collect the commits in the next batch of the current partition. Raises `MalformedMessage`."""
        records = records_of(batch, 0, header)
        if header.is_control:
            pending = self._pending.pop(header.producer_id, [])
            marker = next(iter(records), None)
            if marker is not None and control_record_type(marker.key) is ControlRecordType.COMMIT:
                self._count(pending)
        elif header.is_transactional:
            self._pending.setdefault(header.producer_id, []).extend(records)
        else:
            self._count(records)

    def end_partition(self) -> None:
        """End the current partition. The transactions that are still open in it have committed nothing."""
        self._pending.clear()

    def positions_at_window_start(self) -> list[tuple[str, str, int, int]]:
        """Return the committed offsets of groups at the start of the time window, sorted. Each is (group, topic,
        partition, offset).
        """
        return sorted((*key, offset) for key, offset in self._positions.items())

    def batch_of_positions(self, time_ms: int) -> bytes | None:
        """Encode the committed offsets at the start of the time window as a batch for `__consumer_offsets`, at offset
        0. The records have the commit time `time_ms`. Returns None if there are no committed offsets.
        """
        records = [
            Record(
                type_prefix(OFFSET_KEY) + encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 0),
                type_prefix(OFFSET_VALUE_VERSION)
                + encode(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=time_ms), OFFSET_VALUE_VERSION),
                time_ms,
            )
            for group, topic, partition, offset in self.positions_at_window_start()
        ]
        return build_batch(records, partition_leader_epoch=0) if records else None

    def _count(self, records: Iterator[Record] | list[Record]) -> None:
        for record in records:
            if record.key is None:
                raise MalformedMessage(f"the record at offset {record.offset} of __consumer_offsets has no key")
            if read_prefix(record.key) in OFFSET_COMMIT_KEY_VERSIONS:
                self._count_commit(record.key, record.value, record.timestamp)

    def _count_commit(self, key: bytes, value: bytes | None, time_ms: int) -> None:
        whose = decode(OffsetCommitKey, memoryview(key)[PREFIX_SIZE:], 0)
        if whose.topic not in self._topics or time_ms >= self._to_ms:
            return
        place = (whose.group, whose.topic, whose.partition)
        if value is None:
            if time_ms < self._from_ms:
                self._positions.pop(place, None)
            return
        read = decode(OffsetCommitValue, memoryview(value)[PREFIX_SIZE:], value_version(value, OffsetCommitValue))
        if time_ms < self._from_ms:
            self._positions[place] = read.offset
        else:
            self.commits_in_window.append(CommittedGroupOffset(time_ms, *place, read.offset))
