"""AllocateProducerIds (API 67): a broker leases a block of producer ids."""

from __future__ import annotations

from moldau.protocol.schema import Int16, Int32, Int64, message


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: Int32
    broker_epoch: Int64 = -1


@message(key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64
    producer_id_len: Int32
