"""From the bytes of a `__consumer_offsets` log to the changes that a shard replays.

A transaction's offsets count when its commit marker comes, and never when it aborts; those of a transaction that is
still open at the end are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.group.change_reader import ChangeReader
from coordinator.group.records import Change
from protocol.batch_iterator import iterate_batches
from protocol.control_records import ControlRecordType, control_record_type
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import BatchHeader, crc_is_valid
from protocol.record_reader import records_of


class Replayable(NamedTuple):
    change: Change
    end_offset: int
    """Of the batch that makes the change count."""


class LogReader:
    """Fed with consecutive pieces of the log. Blocks on nothing, but takes its time: meant for a thread."""

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next piece has to begin."""
        self._changes = ChangeReader()
        self._transactions: dict[int, list[Change]] = {}
        """Changes of open transactions, by producer id."""

    def read(self, data: BytesLike) -> list[Replayable]:
        """The changes in the complete batches of a piece. Raises `MalformedMessage` where the log is damaged."""
        found: list[Replayable] = []
        for position, header in iterate_batches(data):
            if header.next_offset <= self.next_offset:
                continue
            if not crc_is_valid(data, position, header):
                raise MalformedMessage(f"the checksum of the batch at offset {header.base_offset} does not match")
            found.extend(self._batch(data, position, header))
            self.next_offset = header.next_offset
        return found

    def _batch(self, data: BytesLike, position: int, header: BatchHeader) -> Iterator[Replayable]:
        end_offset = header.next_offset
        if header.is_control:
            for record in records_of(data, position, header):
                kind = control_record_type(record.key)
                changes = self._transactions.pop(header.producer_id, [])
                if kind is ControlRecordType.COMMIT:
                    yield from (Replayable(change, end_offset) for change in changes)
            return
        for record in records_of(data, position, header):
            change = self._changes.read(record)
            if change is None:
                continue
            if header.is_transactional:
                self._transactions.setdefault(header.producer_id, []).append(change)
            else:
                yield Replayable(change, end_offset)
