"""Turns the bytes of a coordinator's log into the changes that its machine replays.

The records of a transaction count from its commit marker on, and never when it is aborted. Records of a transaction
that is still open at the end of the log are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from protocol.batch_iterator import iterate_batches
from protocol.control_records import ControlRecordType, control_record_type
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import BatchHeader, crc_is_valid
from protocol.record_builder import Record
from protocol.record_reader import records_of

ChangeT = TypeVar("ChangeT")


class Replayable(NamedTuple, Generic[ChangeT]):
    change: ChangeT
    end_offset: int
    """The end offset of the batch that makes the change count, or of a later one that was read with it."""


class RecordReader(Generic[ChangeT]):
    """Decodes the records of a log, batch by batch. A subclass may read many records at once, and join their changes.

    `change_of` decodes one record: None where the machine has no use for it. It raises `MalformedMessage` for what is
    no record of the machine's, or of a version that is not defined.
    """

    def __init__(self, change_of: Callable[[Record], ChangeT | None]) -> None:
        self._change_of = change_of
        self._changes: list[ChangeT] = []

    def read(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        """Decode the records of the batch at this position. Raises `MalformedMessage`."""
        for record in records_of(data, position, header):
            self.read_record(record)

    def read_record(self, record: Record) -> None:
        change = self._change_of(record)
        if change is not None:
            self._changes.append(change)

    def take(self) -> list[ChangeT]:
        """The changes of everything read since the last call, in the order of the log."""
        changes, self._changes = self._changes, []
        return changes


class LogReader(Generic[ChangeT]):
    """Fed with consecutive pieces of a log, whose batches may be cut off at the end of a piece.

    It does no I/O, but a piece of a megabyte takes tens of milliseconds: it is meant for an executor thread.
    """

    def __init__(self, next_offset: int, records: RecordReader[ChangeT]) -> None:
        self.next_offset = next_offset
        """Where the next piece has to begin."""
        self._records = records
        self._found: list[Replayable[ChangeT]] = []
        self._transactions: dict[int, list[ChangeT]] = {}
        """Changes of open transactions, by producer id."""

    def read(self, data: BytesLike) -> list[Replayable[ChangeT]]:
        """The changes in the complete batches of a piece. Raises `MalformedMessage` where the log is damaged."""
        for position, header in iterate_batches(data):
            next_offset = header.next_offset
            if next_offset <= self.next_offset:
                continue
            if not crc_is_valid(data, position, header):
                raise MalformedMessage(f"the checksum of the batch at offset {header.base_offset} does not match")
            if header.is_control:
                self._take(self.next_offset)
                self._end_transaction(data, position, header)
            elif header.is_transactional:
                self._take(self.next_offset)
                self._records.read(data, position, header)
                self._transactions.setdefault(header.producer_id, []).extend(self._records.take())
            else:
                self._records.read(data, position, header)
            self.next_offset = next_offset
        self._take(self.next_offset)
        found, self._found = self._found, []
        return found

    def _take(self, end_offset: int) -> None:
        """The batches up to here are read: their changes come before those of the next batch."""
        self._found.extend(Replayable(change, end_offset) for change in self._records.take())

    def _end_transaction(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        for record in records_of(data, position, header):
            changes = self._transactions.pop(header.producer_id, [])
            if control_record_type(record.key) is ControlRecordType.COMMIT:
                self._found.extend(Replayable(change, header.next_offset) for change in changes)
