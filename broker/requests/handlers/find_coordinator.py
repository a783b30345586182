"""FindCoordinator: the broker that coordinates a group."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from broker.config.internal_topics import GROUP_METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker

BATCH_VERSION: Final = 4
"""From this version on several keys are asked for at once."""
NOBODY: Final = -1


class KeyType(IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


NO_TRANSACTIONS: Final = "this broker does not coordinate transactions"
INVALID_REQUEST: Final = "the key type is none that this broker coordinates"
NOT_AVAILABLE: Final = "The coordinator is not available."


def handle(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= BATCH_VERSION:
        found = [find(broker, context, key, request.key_type) for key in request.coordinator_keys]
        for coordinator in found:
            if coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                coordinator.error_message = ""
        return FindCoordinatorResponse(coordinators=found)
    coordinator = find(broker, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or ErrorCode.NONE.name,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def find(broker: Broker, context: RequestContext, key: str, key_type: int) -> Coordinator:
    if key_type == KeyType.TRANSACTION:
        # DIVERGES: there are no transactions yet; an error that clients would repeat for ever helps nobody.
        return refused(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != KeyType.GROUP:
        return refused(key, ErrorCode.INVALID_REQUEST, INVALID_REQUEST)
    index = broker.groups.partition_of(key)
    partition = broker.image.topics.partition(GROUP_METADATA_TOPIC, index)
    if partition is None:
        broker.create_internal_topic(GROUP_METADATA_TOPIC)
        return refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    if broker.replicas.why_not(GROUP_METADATA_TOPIC, index) is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # it is being made
        return refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    for node in broker.live_nodes(context.listener.name):
        if node.id == partition.leader:
            return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)
    return refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)


def refused(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NOBODY, host="", port=NOBODY, error_code=error, error_message=message)
