"""DescribeCluster (API key 60, versions 0-2; KIP-700, KIP-919, KIP-1073): the cluster's id and its nodes.

Behind a broker's listener the nodes are brokers, behind a controller's they are controllers (version 1); a request
for the other kind is refused. Version 2 includes fenced brokers if the client asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import handler_asks, needs_cluster
from moldau.broker.apis.visibility import NOT_ASKED, permitted_on_cluster
from moldau.broker.network.route import ListenerRole
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(services: Services, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    served = CONTROLLERS if context.listener.role is ListenerRole.CONTROLLER else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    if request.endpoint_type != served:
        text = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
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
        cluster_authorized_operations=permitted_on_cluster(context.access)
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
