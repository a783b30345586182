"""ListGroups (API key 16, versions 0-5; KIP-518, KIP-848): the groups of all kinds that this broker coordinates.

4: a filter by state (KIP-518) · 5: a filter by type (KIP-848).

DESCRIBE on the cluster shows all groups, DESCRIBE on a group shows that one.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import on_group, unless_permitted, visible
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> object:
    return services.long_requests.answer(context, _listed(services, request))


def _listed(services: Services, request: ListGroupsRequest) -> Answering:
    """List the groups of all shards, in slices. The response is an error if a shard is loading, because its groups are
    not known yet."""
    response = ListGroupsResponse()
    for runner in services.groups.runners:
        if runner.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ListGroupsResponse(error_code=runner.refusal)
        if runner.refusal is not ErrorCode.NONE:
            continue
        for entry in runner.shard.list_groups(request.states_filter, request.types_filter):
            yield
            if entry is not None:
                response.groups.append(entry)
    return response


API: Final = Api(
    ListGroupsRequest,
    broker=handle,
    needs=unless_permitted(AclOperation.DESCRIBE, visible("groups", on_group, AclOperation.DESCRIBE, "group_id")),
    lists=[at_most(ENTRIES_MAX, "states_filter", "types_filter")],
)
