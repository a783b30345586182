"""FindCoordinator (API key 10, versions 0-6; KIP-98, KIP-699, KIP-932): finds the broker that coordinates a group or a
transaction, or stores the state of a share partition.

1: transactional ids (KIP-98) · 4: several keys (KIP-699) · 6: keys of share state (KIP-932). The coordinator of a key
is the leader of a partition of an internal topic, which is created at the first request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import Answer, Of, each_in, needs, on_cluster, on_group, on_transactional_id
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import InternalTopic
from moldau.broker.coordinators.definition import KeyType
from moldau.broker.coordinators.share_coordinator import is_share_key
from moldau.broker.metadata.cluster_view import NodeAddress
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.security.access import AclOperation

BATCH_VERSION: Final = 4
"""The first version in which a request has several keys."""
SHARE_VERSION: Final = 6
"""The first version with keys of share partitions, which only brokers request."""
NO_NODE: Final = -1
PERMISSIONS: Final[Mapping[int, tuple[Of, AclOperation]]] = {
    KeyType.GROUP: (on_group, AclOperation.DESCRIBE),
    KeyType.TRANSACTION: (on_transactional_id, AclOperation.DESCRIBE),
    KeyType.SHARE: (lambda operation, key: on_cluster(operation), AclOperation.CLUSTER_ACTION),
}
"""The permission for a key, by the type of the key."""


def handle(services: Services, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= BATCH_VERSION else [request.key]
    found = find(services, context, keys, request.key_type)
    return response_of(found, context.version, is_share=request.key_type == KeyType.SHARE)


def response_of(found: list[Coordinator], version: int, *, is_share: bool = False) -> FindCoordinatorResponse:
    """Make the response in the form of the request's version. From 4 on, only keys of an unknown type get a message."""
    if version >= BATCH_VERSION:
        for coordinator in found:
            if coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE or is_share:
                coordinator.error_message = ""
        return FindCoordinatorResponse(coordinators=found)
    (coordinator,) = found
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or ErrorCode.NONE.name,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def find(services: Services, context: RequestContext, keys: Sequence[str], key_type: int) -> list[Coordinator]:
    """Find the coordinators of keys. The leader of each partition of the internal topic is looked up once."""
    coordinator = services.coordinators.of_key_type(key_type)
    is_share = key_type == KeyType.SHARE
    if coordinator is None or (is_share and context.version < SHARE_VERSION):
        return [refused_coordinator(key, ErrorCode.INVALID_REQUEST) for key in keys]
    nodes: dict[int, NodeAddress | None] = {}
    found = []
    for key in keys:
        if is_share and not is_share_key(key):
            found.append(refused_coordinator(key, ErrorCode.INVALID_REQUEST))
            continue
        index = coordinator.partition_of(key)
        if index not in nodes:
            nodes[index] = _leader(services, context, coordinator.topic, index)
        node = nodes[index]
        found.append(
            refused_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if node is None
            else Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)
        )
    return found


def _leader(services: Services, context: RequestContext, topic: InternalTopic, index: int) -> NodeAddress | None:
    """The address of a partition's leader; None if there is no leader yet, or if it is not reachable. If the topic does
    not exist, its creation is requested."""
    partition = services.cluster.image.topics.partition(topic.name, index)
    if partition is None:
        services.topics.create_internal(topic)
        return None
    if services.replicas.error_of(topic.name, index) is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # its log is being created
        return None
    live = services.cluster.live_nodes(context.listener.name)
    return next((node for node in live if node.id == partition.leader), None)


def refused_coordinator(key: str, error: ErrorCode) -> Coordinator:
    text = ERROR_TEXTS[error]
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=text)


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: DESCRIBE on each group or transactional id, and CLUSTER_ACTION for keys of share state, which only
    brokers request. A type of keys that the version does not have needs no permission: it is refused anyway."""
    assert isinstance(request, FindCoordinatorRequest)
    kind = request.key_type
    if kind not in PERMISSIONS or (kind == KeyType.SHARE and context.version < SHARE_VERSION):
        return answer(context, request)
    of, operation = PERMISSIONS[kind]
    if context.version < BATCH_VERSION:
        return needs(of, operation, "key")(services, context, request, answer)
    rule = each_in("coordinator_keys", of, operation, None, results="coordinators")
    return rule(services, context, request, answer)


API: Final = Api(
    FindCoordinatorRequest, broker=handle, needs=acl_rule, lists=[in_parts("coordinator_keys", "coordinators")]
)
