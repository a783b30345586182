"""Decodes the log of a coordinator into the changes that the coordinator's machine replays, in the order of the log.

A machine gets the records of a transaction in the order of the log, and the end of the transaction later. Until then
the machine itself keeps the changes pending (`RecordReader.end_transaction`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of

ChangeT = TypeVar("ChangeT")

END_OF_TRANSACTION: Final = (ControlRecordType.COMMIT, ControlRecordType.ABORT)


class Replayable(NamedTuple, Generic[ChangeT]):
    change: ChangeT
    end_offset: int
    """The end offset of the batch that has the change. If several batches are read together, it is that of the last
    one."""


class RecordReader(Generic[ChangeT]):
    """Decodes the records of a log, batch by batch. A subclass may read many records at once, and join their changes.

    `change_of` decodes one record. It returns None if the machine ignores the record, and raises `MalformedMessage` for
    a record that does not belong to the machine or has an undefined version.
    """

    def __init__(self, change_of: Callable[[Record], ChangeT | None]) -> None:
        self._change_of = change_of
        self._changes: list[ChangeT] = []
        self.ignored = 0
        """The number of records read so far that the machine ignores."""

    def read(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        """Decode the records of the batch at this position, which may be part of a transaction. Raises
        `MalformedMessage`."""
        for record in records_of(data, position, header):
            self.read_record(record)

    def read_record(self, record: Record) -> None:
        change = self._change_of(record)
        if change is None:
            self.ignored += 1
        else:
            self._changes.append(change)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Handle the marker that ends a producer's transaction. A machine that writes in transactions overrides
        this."""

    def take_changes(self) -> list[ChangeT]:
        """Return the changes decoded since the last call, in the order of the log, and forget them."""
        changes, self._changes = self._changes, []
        return changes


class LogReader(Generic[ChangeT]):
    """Reads a coordinator's log from consecutive pieces, each of which may end within a batch. It does no I/O. A piece
    of a megabyte takes tens of milliseconds, so it runs on an executor thread."""

    def __init__(self, next_offset: int, records: RecordReader[ChangeT]) -> None:
        self.next_offset = next_offset
        """The offset at which the next piece has to begin."""
        self._records = records

    @property
    def ignored(self) -> int:
        """The number of records read so far that the machine ignores."""
        return self._records.ignored

    def read(self, data: BytesLike) -> list[Replayable[ChangeT]]:
        """Decode the changes in the complete batches of a piece. Raises `MalformedMessage` if the log is damaged."""
        for position, header in iterate_batches(data):
            # First the checksum: it covers the number of offsets, by which a batch is skipped.
            if not crc_is_valid(data, position, header):
                raise MalformedMessage(f"the checksum of the batch at offset {header.base_offset} does not match")
            next_offset = header.next_offset
            if next_offset <= self.next_offset:
                if position:
                    raise MalformedMessage(f"the batch at offset {header.base_offset} follows {self.next_offset - 1}")
                continue  # The piece begins with a batch that is read already.
            if header.is_control:
                self._read_markers(data, position, header)
            else:
                self._records.read(data, position, header)
            self.next_offset = next_offset
        return [Replayable(change, self.next_offset) for change in self._records.take_changes()]

    def _read_markers(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        for record in records_of(data, position, header):
            kind = control_record_type(record.key)
            if kind in END_OF_TRANSACTION:
                is_commit = kind is ControlRecordType.COMMIT
                self._records.end_transaction(header.producer_id, is_commit=is_commit)
