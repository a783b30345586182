"""EndTxn (API 26): commit or abort a transaction; version 5 answers with the producer id and epoch of the next one."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, message, since


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1
