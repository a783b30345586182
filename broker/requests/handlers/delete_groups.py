"""DeleteGroups (API key 42, versions 0-2; KIP-229): delete groups without members, with their offsets.

The groups of a request may belong to several shards of this broker: the reply waits for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.requests.handlers.coordinator_request import join_answers, submit_event
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.events import DeleteGroups
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext


class DeleteGroupsServices(Protocol):
    @property
    def groups(self) -> Groups: ...


def handle(
    services: DeleteGroupsServices, context: RequestContext, request: DeleteGroupsRequest
) -> Pending[DeleteGroupsResponse]:
    """Submit one event to each shard, with all its groups. The groups without a shard here come first."""
    groups = services.groups
    parts = [submit_part(groups, context.version, names) for names in by_shard(groups, request.groups_names)]
    parts.sort(key=lambda part: isinstance(part, Pending))
    return join_answers(
        parts, lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part.results])
    )


def by_shard(groups: Groups, group_ids: list[str]) -> Collection[list[str]]:
    """The groups of each shard; each group whose shard is not here stands for itself."""
    names: defaultdict[int | str, list[str]] = defaultdict(list)
    for group_id in dict.fromkeys(group_ids):
        is_absent = isinstance(groups.runner_of(group_id), ErrorCode)
        names[group_id if is_absent else groups.partition_of(group_id)].append(group_id)
    return names.values()


def submit_part(groups: Groups, version: int, names: list[str]) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Submit the groups of one shard."""
    return submit_event(
        groups.runner_of(names[0]),
        version,
        lambda waiter: DeleteGroups(waiter, DeleteGroupsRequest(groups_names=names)),
        lambda error: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=error) for name in names]
        ),
    )
