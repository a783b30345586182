"""The slow reader of the records of `__consumer_offsets`, a reference for the quick one: one change for each record."""

from __future__ import annotations

from moldau.coordinator.group.records import LoadedChange, OffsetChange, TransactionEnded
from moldau.coordinator.runtime.log_reading import RecordReader
from moldau.coordinator.shard.kinds import change_of
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import BatchHeader
from moldau.protocol.record_reader import records_of


class OneByOne(RecordReader[LoadedChange]):
    def __init__(self) -> None:
        super().__init__(change_of)

    def read(self, data: BytesLike, position: int, header: BatchHeader) -> None:
        for record in records_of(data, position, header):
            change = change_of(record)
            if isinstance(change, OffsetChange) and header.is_transactional:
                change = change._replace(producer_id=header.producer_id)
            if change is not None:
                self._changes.append(change)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self._changes.append(TransactionEnded(producer_id, is_commit))
