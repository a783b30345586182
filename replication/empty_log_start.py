"""Where an empty replica begins whose leader's log starts in the middle of a batch."""

from __future__ import annotations

from contextlib import suppress

from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import HEADER_SIZE, crc_is_valid, whole_batch
from storage.log.log import Log


def start_with_batch(log: Log, records: BytesLike, now_ms: int) -> None:
    """Let an empty log, which begins at its leader's log start offset, begin with the batch that holds that offset.

    DeleteRecords moves a log start offset to any record, but batches are replicated whole. Nothing happens where the
    log has records, or where the batch is damaged or does not hold the offset: then the append that follows tells the
    error.
    """
    if log.end_offset != log.log_start_offset or len(records) < HEADER_SIZE or log.failure is not None:
        return
    with suppress(MalformedMessage, OSError):
        header = whole_batch(memoryview(records), 0, len(records))
        if header is None or not header.base_offset < log.end_offset < header.next_offset:
            return
        if crc_is_valid(records, 0, header):
            log.truncate_fully_and_start_at(header.base_offset, now_ms)
