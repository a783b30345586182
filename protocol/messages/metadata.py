"""Metadata (API 3): the brokers, and the topics with their partitions and leaders."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Uuid, empty, message, nullable, since, struct, until


@struct
class MetadataRequestTopic:
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    name: Annotated[str | None, nullable(10)] = ""


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = empty()
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, since(1), nullable(1)] = None


@struct
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32] = empty()
    isr_nodes: list[Int32] = empty()
    offline_replicas: Annotated[list[Int32], since(5)] = empty()


@struct
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: Annotated[str | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    is_internal: Annotated[bool, since(1)] = False
    partitions: list[MetadataResponsePartition] = empty()
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker] = empty()
    cluster_id: Annotated[str | None, since(2), nullable(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic] = empty()
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -2147483648
    error_code: Annotated[Int16, since(13)] = 0
