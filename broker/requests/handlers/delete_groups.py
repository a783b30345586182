"""DeleteGroups (API key 42, versions 0-3; KIP-229): delete groups without members, with their offsets.

The groups of a request may belong to several shards of this broker: the reply waits for all of them. The state of a
share group is deleted at the share coordinator first (KIP-932): a later group of the same name begins anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.share_initialization import delete_states
from moldau.broker.coordinators.share_persister import ShareStatePersister
from moldau.broker.coordinators.share_state_messages import Answers
from moldau.broker.requests.handlers.coordinator_request import join_answers, submit_event
from moldau.broker.runtime.pending import COORDINATOR, Pending, when_ready
from moldau.coordinator.group.events import DeleteGroups
from moldau.coordinator.group.group import Group
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

SHARE: Final = "share"
"""The kind of group whose state the share coordinator keeps."""
GONE: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The state is deleted, or the share coordinator has deleted it with its topic."""


class DeleteGroupsServices(Protocol):
    @property
    def groups(self) -> Groups: ...

    @property
    def share_persister(self) -> ShareStatePersister: ...


def handle(
    services: DeleteGroupsServices, context: RequestContext, request: DeleteGroupsRequest
) -> Pending[DeleteGroupsResponse]:
    """Submit one event to each shard, with all its groups. The groups without a shard here come first."""
    shards = by_shard(services.groups, request.groups_names)
    parts = [submit_part(services, context.version, names) for names in shards]
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


def submit_part(
    services: DeleteGroupsServices, version: int, names: list[str]
) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Delete the groups of one shard, and before them the state of the share groups among them."""
    states = share_states(services.groups, names)
    if not states:
        return submit(services.groups, version, names)
    reply: Pending[DeleteGroupsResponse] = Pending(waits_for=COORDINATOR)
    results: list[DeletableGroupResult] = []
    waiting = set(states)

    def deleted(group_id: str, answers: Answers) -> None:
        waiting.remove(group_id)
        error = next((each.error for each in answers.values() if each.error not in GONE), None)
        if error is not None:
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if not waiting:
            failed = {each.group_id for each in results}
            left = [name for name in names if name not in failed]
            when_ready(submit(services.groups, version, left) if left else DeleteGroupsResponse(), joined)

    def joined(response: DeleteGroupsResponse) -> None:
        reply.complete(DeleteGroupsResponse(results=[*results, *response.results]))

    for group_id, topics in states.items():
        delete_states(services.share_persister, group_id, topics, partial(deleted, group_id))
    return reply


def share_states(groups: Groups, names: list[str]) -> dict[str, dict[bytes, frozenset[int]]]:
    """The share partitions of the share groups that can be deleted, by group and topic id."""
    runner = groups.runner_of(names[0])
    if isinstance(runner, ErrorCode):
        return {}
    found = {}
    for name in names:
        group = runner.shard.group(name)
        if group is not None and group.type_name == SHARE and group.deletion_error() is ErrorCode.NONE:
            found[name] = states_of(group)
    return found


def states_of(group: Group) -> dict[bytes, frozenset[int]]:
    from moldau.coordinator.share.group import ShareGroup
    from moldau.coordinator.share.state_topics import combined

    assert isinstance(group, ShareGroup)
    topics = combined(group.state_topics.initialized, group.state_topics.initializing)
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}


def submit(groups: Groups, version: int, names: list[str]) -> DeleteGroupsResponse | Pending[DeleteGroupsResponse]:
    """Submit the groups of one shard."""
    return submit_event(
        groups.runner_of(names[0]),
        version,
        lambda waiter: DeleteGroups(waiter, DeleteGroupsRequest(groups_names=names)),
        lambda error: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=error) for name in names]
        ),
    )
