"""OffsetDelete (API key 47, version 0; KIP-496): deletes committed offsets of a group.

Only offsets of topics to which no member of the group is subscribed are deleted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.groups.existing_partitions import add_missing, remove_missing
from moldau.broker.apis.needs import all_of, each_in, needs, on_group, on_topic
from moldau.broker.apis.parts import OFFSETS_SIZE, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Reply
from moldau.coordinator.group.events import DeleteOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: OffsetDeleteRequest) -> Reply[OffsetDeleteResponse]:
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: DeleteOffsets(waiter, request),
        lambda error: OffsetDeleteResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID),
        partial(add_missing, remove_missing(services.cluster, request, context.version), False),
    )


API: Final = Api(
    OffsetDeleteRequest,
    broker=handle,
    needs=all_of(needs(on_group, AclOperation.DELETE, "group_id"), each_in("topics", on_topic, AclOperation.READ)),
    lists=[in_parts("topics.partitions", size=OFFSETS_SIZE)],
)
