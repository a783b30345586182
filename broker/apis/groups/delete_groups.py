"""DeleteGroups (API key 42, versions 0-3; KIP-229): deletes groups without members, with their offsets.

3: a message beside an error. The groups of a request may belong to several shards of this broker; the reply waits for
all of them. For a share group, the share coordinator first deletes the state (KIP-932), so that a later group of the
same name has none. Before that, the group records that its state will be deleted. If the group is then not deleted,
because a member joined or a coordinator failed, it initializes its state again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.needs import each_in, on_group
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.share_coordinator_messages import Answers
from moldau.broker.coordinators.share_group_commands import delete_states
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply, call_with_response
from moldau.coordinator.group.events import DeleteGroups
from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.share.events import DeleteStates, StatesToDelete
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.coordinators.groups import GroupRunner

SHARE_GROUP_TYPE: Final = "share"
"""The type of groups whose state the share coordinator stores."""
STATE_DELETED_ERRORS: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The errors of the share coordinator that mean that a state is deleted: now, or earlier with its topic."""


def handle(services: Services, context: RequestContext, request: DeleteGroupsRequest) -> Pending[DeleteGroupsResponse]:
    """Submit one event for each shard. Results of groups whose shard is not on this broker come first."""
    shards = group_ids_by_shard(services.groups, request.groups_names)
    parts = [submit_part(services, context.version, names) for names in shards]
    parts.sort(key=lambda part: isinstance(part, Pending))
    return join_answers(
        parts, lambda parts: DeleteGroupsResponse(results=[result for part in parts for result in part.results])
    )


def group_ids_by_shard(groups: Groups, group_ids: list[str]) -> Collection[list[str]]:
    """The group ids, without repetitions, in one list for each shard. A group whose shard is not on this broker has a
    list of its own.
    """
    names: defaultdict[int | str, list[str]] = defaultdict(list)
    for group_id in dict.fromkeys(group_ids):
        is_absent = isinstance(groups.runner_of(group_id), ErrorCode)
        names[group_id if is_absent else groups.partition_of(group_id)].append(group_id)
    return names.values()


def submit_part(services: Services, version: int, names: list[str]) -> Reply[DeleteGroupsResponse]:
    """Delete groups of one shard. The state of share groups among them is deleted first."""
    runner = services.groups.runner_of(names[0])
    shared = [] if isinstance(runner, ErrorCode) else [name for name in names if is_share_group(runner, name)]
    if isinstance(runner, ErrorCode) or not shared:
        return submit(services.groups, version, names)
    reply: Pending[DeleteGroupsResponse] = Pending(waits_for=COORDINATOR)
    results: list[DeletableGroupResult] = []
    waiting = set(shared)

    def noted(group_id: str, answer: object) -> None:
        if isinstance(answer, StatesToDelete):
            delete_states(services.share_persister, group_id, answer.states, partial(deleted, group_id))
        else:
            assert isinstance(answer, Refusal)
            ended(group_id, answer.error)

    def deleted(group_id: str, answers: Answers) -> None:
        ended(group_id, next((each.error for each in answers.values() if each.error not in STATE_DELETED_ERRORS), None))

    def ended(group_id: str, error: ErrorCode | None) -> None:
        waiting.remove(group_id)
        if error is not None:
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        if not waiting:
            failed = {each.group_id for each in results}
            left = [name for name in names if name not in failed]
            call_with_response(submit(services.groups, version, left) if left else DeleteGroupsResponse(), joined)

    def joined(response: DeleteGroupsResponse) -> None:
        reply.complete(DeleteGroupsResponse(results=[*results, *response.results]))

    for group_id in shared:
        answer: object = submit_event(runner, version, partial(DeleteStates, group_id=group_id), Refusal)
        call_with_response(answer, partial(noted, group_id))
    return reply


def is_share_group(runner: GroupRunner, group_id: str) -> bool:
    """Whether a group is a share group, and may be deleted."""
    group = runner.shard.group(group_id)
    return group is not None and group.type_name == SHARE_GROUP_TYPE and group.deletion_error() is ErrorCode.NONE


def submit(groups: Groups, version: int, names: list[str]) -> Reply[DeleteGroupsResponse]:
    """Submit the deletion of groups to the state machine of their shard."""
    return submit_event(
        groups.runner_of(names[0]),
        version,
        lambda waiter: DeleteGroups(waiter, DeleteGroupsRequest(groups_names=names)),
        lambda error: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=error) for name in names]
        ),
    )


API: Final = Api(
    DeleteGroupsRequest,
    broker=handle,
    needs=each_in("groups_names", on_group, AclOperation.DELETE, None, results="results"),
    lists=[in_parts("groups_names", "results")],
)
