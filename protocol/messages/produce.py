"""Produce (API 0): append record batches to partitions."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    Uuid,
    empty,
    message,
    nullable,
    since,
    struct,
    tag,
    until,
)


@struct
class PartitionProduceData:
    index: Int32
    records: Annotated[Records | None, nullable()] = None


@struct
class TopicProduceData:
    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_data: list[PartitionProduceData] = empty()


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: Annotated[str | None, nullable()] = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData] = empty()


def copy_records(request: object) -> int:
    """Replace the records of a decoded request, which are views of the buffer that it was decoded from, by copies.
    Returns their size (bytes). A request that is not handled at once needs this if its buffer is used again."""
    assert isinstance(request, ProduceRequest)
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytes(data.records)
                size += len(data.records)
    return size


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: Annotated[str | None, nullable(8)] = None


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8)] = empty()
    error_message: Annotated[str | None, since(8), nullable(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, since(10), tag(0)] = None


@struct
class TopicProduceResponse:
    name: Annotated[str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = empty()


@struct
class NodeEndpoint:
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, nullable(10)] = None


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = empty()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], since(10), tag(0)] = empty()
