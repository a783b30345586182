"""DeleteGroups (API key 42, versions 0-2; KIP-229): delete groups without members, with their offsets.

The groups of a request may belong to several shards of this broker: the reply waits for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.group.events import DeleteGroups
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from moldau.broker.coordinators.groups import GroupRunner
    from moldau.broker.network.route import RequestContext


class DeleteGroupsServices(Protocol):
    @property
    def groups(self) -> Groups: ...


class GatheredDeletions:
    """The reply, complete when all shards have answered."""

    def __init__(self) -> None:
        self.pending: Pending[DeleteGroupsResponse] = Pending(waits_for=COORDINATOR)
        self.waiting = 1
        """Shards that have been asked, and one for the handler itself."""
        self._results: list[DeletableGroupResult] = []

    def refuse(self, group_id: str, error: ErrorCode) -> None:
        self._results.append(DeletableGroupResult(group_id=group_id, error_code=error))

    def complete(self, response: object) -> None:
        assert isinstance(response, DeleteGroupsResponse)
        self._results.extend(response.results)
        self.waiting -= 1
        if self.waiting == 0:
            self.pending.complete(DeleteGroupsResponse(results=self._results))


def handle(
    services: DeleteGroupsServices, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    groups = services.groups
    reply = GatheredDeletions()
    by_partition: dict[int, tuple[GroupRunner, list[str]]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        runner = groups.runner_of(group_id)
        if isinstance(runner, ErrorCode):
            reply.refuse(group_id, runner)
        else:
            by_partition.setdefault(groups.partition_of(group_id), (runner, []))[1].append(group_id)
    for runner, names in by_partition.values():
        reply.waiting += 1
        runner.submit(DeleteGroups(Waiter(reply, context.version), DeleteGroupsRequest(groups_names=names)))
    reply.complete(DeleteGroupsResponse())
    return reply.pending
