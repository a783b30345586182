"""DescribeCluster: the cluster's id and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.requests.apis import Role
from broker.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    served = CONTROLLERS if context.listener.role is Role.CONTROLLER else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != served:
        text = (
            "The request was sent to an endpoint of the wrong type."
            if served == BROKERS
            else ("The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER")
        )
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    listener = context.listener.name
    if served == CONTROLLERS:
        nodes = [
            DescribeClusterBroker(
                broker_id=node.id, host=node.endpoints[listener].host, port=node.endpoints[listener].port
            )
            for node in broker.image.cluster.controllers.values()
            if listener in node.endpoints
        ]
        controller_id = broker.quorum.leader_id
    else:
        nodes = [
            DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
            )
            for node in broker.nodes(listener)
            if request.include_fenced_brokers or not node.is_fenced
        ]
        controller_id = broker.any_live_node_id()
    return DescribeClusterResponse(
        endpoint_type=served,
        cluster_id=broker.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _refused(error: ErrorCode, text: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error, error_message=text, cluster_id="")
