"""Reads the records of `__transaction_state` when a coordinator starts.

A transaction leaves three records or more, one after the other, and the last record of a transactional id holds its
whole state. Each piece of the log is read without its values first; of each id only the last value is decoded.
"""

from __future__ import annotations

from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.transaction.records import TransactionChange, change_of
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record


class TransactionRecordReader(RecordReader[TransactionChange]):
    def __init__(self) -> None:
        super().__init__(change_of)
        self._last: dict[bytes, Record] = {}
        """The last value by key."""

    def read_record(self, record: Record) -> None:
        if record.key is None:
            raise MalformedMessage("a record without a key")
        self._last[record.key] = record

    def take(self) -> list[TransactionChange]:
        for record in self._last.values():
            super().read_record(record)
        self._last.clear()
        return super().take()
