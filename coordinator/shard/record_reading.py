"""Reads the records of `__consumer_offsets`, of which there may be millions, when a coordinator starts.

Nearly all records are offsets of the same groups and topics again and again, with a value in one of three formats.
`offset_walk.py` reads such records from the bytes of a batch, and `kinds.change_of` reads every other record.
Consecutive commits, all within one transaction or all outside of any, become one change, with the last offset of each
partition.
"""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.records import (
    LoadedChange,
    OffsetChange,
    Offsets,
    OffsetsLoaded,
    TransactionEnded,
)
from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.offset_walk import Place, walk_offsets
from moldau.protocol.primitives import BytesLike, MalformedMessage, read_varint
from moldau.protocol.record_batch import NO_PRODUCER_ID, BatchHeader
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import decode_run, record_runs_of

RECORDS_AT_ONCE: Final = 1_000
"""The most records that one call of `walk_offsets` reads, in less than 1 ms. The number is limited because compiled
code does not release the interpreter's lock."""


class GroupRecordReader(RecordReader[LoadedChange]):
    def __init__(self) -> None:
        super().__init__(change_of)
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group id and topic by the encoded key without its partition, so that equal names share one object."""
        self._offsets: dict[str, Offsets] = {}
        """The offsets of the commits since the last change of another type, by group id."""
        self._producer_id = NO_PRODUCER_ID
        """The producer in whose transaction the commits in `_offsets` are."""
        self._places: dict[bytes, Place] = {}
        """The dictionary and the topic for an offset, by the encoded key without its partition."""

    def read(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        if producer_id != self._producer_id:
            self._end_commits()
            self._producer_id = producer_id
        for run, count in record_runs_of(data, position, header):
            self._read_run(run, count, header)

    def _read_run(self, run: bytes, count: int, header: BatchHeader) -> None:
        """Read `count` records, which must fill the bytes of `run`."""
        at = 0
        while count:
            at, walked = walk_offsets(run, at, min(count, RECORDS_AT_ONCE), self._places, self._place)
            count -= walked
            if count and walked < RECORDS_AT_ONCE:
                at = self._read_other(run, at, header)
                count -= 1
        if at != len(run):
            raise MalformedMessage(f"{len(run) - at} bytes after the records of a batch")

    def _read_other(self, run: bytes, at: int, header: BatchHeader) -> int:
        """Read the record at position `at`, whatever its form. Returns the position of the next record."""
        try:
            size, start = read_varint(run, at)
        except IndexError:
            raise MalformedMessage("a record goes past the end of its batch") from None
        end = start + size
        for record in decode_run(run[at:end], 1, header):
            self.read_record(record)
        return end

    def read_record(self, record: Record) -> None:
        change = change_of(record)
        if isinstance(change, OffsetChange) and change.value is not None:
            self._offsets.setdefault(change.group_id, {})[change.topic, change.partition] = change.value
        elif change is None:
            self.ignored += 1
        else:
            self._end_commits()
            self._changes.append(change)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self._end_commits()
        self._changes.append(TransactionEnded(producer_id, is_commit))

    def take_changes(self) -> list[LoadedChange]:
        self._end_commits()
        return super().take_changes()

    def _end_commits(self) -> None:
        """Join the commits read so far into one change, because the next record is of another type or transaction."""
        if self._offsets:
            self._changes.append(OffsetsLoaded(self._offsets, self._producer_id))
            self._offsets = {}
            self._places.clear()

    def _place(self, names: bytes) -> Place:
        """Make the entry of `_places` for a group and a topic; `names` is the encoded key without its partition.

        Raises `MalformedMessage`.
        """
        known = self._names.get(names)
        if known is None:
            change = change_of(Record(names + bytes(4), None))
            assert isinstance(change, OffsetChange)
            known = self._names[names] = change.group_id, change.topic
        group_id, topic = known
        place = self._places[names] = self._offsets.setdefault(group_id, {}), topic
        return place
