"""DescribeCluster (API key 60, versions 0-2; KIP-700, KIP-919, KIP-1073): the cluster's id and its nodes.

1: the kind of nodes (KIP-919): brokers behind a broker's listener, controllers behind a controller's; a request for the
other kind is refused · 2: fenced brokers, if the client asks for them (KIP-1073).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import NOT_ASKED, handler_asks, needs_cluster, permitted_cluster_operations
from moldau.broker.apis.services import Services
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.security.access import AclOperation

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(services: Services, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    served = CONTROLLERS if context.listener.role is ListenerRole.CONTROLLER else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != served:
        sent, wanted = ("BROKER", "CONTROLLER") if served == BROKERS else ("CONTROLLER", "BROKER")
        text = f"The request was sent to an endpoint of type {sent}, but we wanted an endpoint of type {wanted}"
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    listener = context.listener.name
    if served == CONTROLLERS:
        nodes = [
            DescribeClusterBroker(
                broker_id=node.id, host=node.endpoints[listener].host, port=node.endpoints[listener].port
            )
            for node in services.cluster.image.cluster.controllers.values()
            if listener in node.endpoints
        ]
        controller_id = services.quorum.leader_id
    else:
        nodes = [
            DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
            )
            for node in services.cluster.nodes(listener)
            if request.include_fenced_brokers or not node.is_fenced
        ]
        controller_id = services.cluster.any_live_node_id()
    return DescribeClusterResponse(
        endpoint_type=served,
        cluster_id=services.cluster.id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=permitted_cluster_operations(context.access)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _refused(error: ErrorCode, text: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error, error_message=text, cluster_id="")


API: Final = Api(
    DescribeClusterRequest,
    broker=handle,
    controller=handle,
    needs=needs_cluster(AclOperation.ALTER),
    broker_needs=handler_asks,
)
