"""DescribeCluster (API 60): the cluster id and its brokers or controllers."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, since, struct


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[bool, since(2)] = False


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, nullable()] = None
    is_fenced: Annotated[bool, since(2)] = False


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = empty()
    cluster_authorized_operations: Int32 = -2147483648
