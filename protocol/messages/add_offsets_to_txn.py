"""AddOffsetsToTxn (API 25): add the partition that stores a group's offsets to a transaction."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, Int64, message


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
