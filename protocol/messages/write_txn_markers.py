"""WriteTxnMarkers (API 27): write the markers that end transactions to the partitions of one leader."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, Int64, empty, message, since, struct


@struct
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: list[Int32] = empty()


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    """Whether the transaction is committed; otherwise it is aborted."""
    topics: list[WritableTxnMarkerTopic] = empty()
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2)] = 0


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = empty()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: str
    partitions: list[WritableTxnMarkerPartitionResult] = empty()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult] = empty()


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = empty()
