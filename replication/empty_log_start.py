"""The start of an empty replica's log where its leader's log start offset lies within a batch."""

from __future__ import annotations

from contextlib import suppress

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, crc_is_valid, parse_header
from moldau.storage.log.log import Log


def start_with_batch(log: Log, records: BytesLike, leader_epoch: int, now_ms: int) -> None:
    """Move the start of an empty log from its leader's log start offset to the beginning of the batch that holds that
    offset.

    DeleteRecords moves a log start offset to any record, but batches are replicated whole. Nothing happens where the
    log has records, where the batch does not hold the offset, or where it cannot be appended (damaged, cut short, of a
    later epoch than `leader_epoch`, the one that was fetched from): then the append that follows tells the error.
    """
    if log.end_offset != log.log_start_offset or len(records) < HEADER_SIZE or log.failure is not None:
        return
    with suppress(MalformedMessage, OSError):
        header = parse_header(records, 0)
        is_whole = header.size <= len(records) and crc_is_valid(records, 0, header)
        holds_start = header.base_offset < log.end_offset < header.next_offset
        if holds_start and is_whole and header.partition_leader_epoch <= leader_epoch:
            log.truncate_fully_and_start_at(header.base_offset, now_ms)
