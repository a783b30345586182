"""ListPartitionReassignments: none is ever under way on a cluster of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from broker.connection import RequestContext
    from broker.node import Broker


def handle(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
