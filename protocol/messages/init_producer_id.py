"""InitProducerId (API 22): obtain a producer id and epoch."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Int64, message, nullable, since


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: Annotated[str | None, nullable()] = ""
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16
