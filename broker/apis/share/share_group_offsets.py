"""The offsets of share groups. The group coordinator has the list of a group's share partitions, the share coordinator
their start offsets.

DescribeShareGroupOffsets (API key 90, versions 0-1; KIP-932, KIP-1226): the start offset of each share partition.
1: the lag (KIP-1226), which counts the records after the start offset whose delivery is not complete. The leader of the
partition gives the latest offset.
AlterShareGroupOffsets (API key 91, version 0; KIP-932): sets the start offsets of a group without members.
DeleteShareGroupOffsets (API key 92, version 0; KIP-932): forgets topics of a group without members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import ReplyToken, join_answers
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import handler_asks
from moldau.broker.apis.parts import Answering, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.coordinators.share_coordinator_messages import Answers
from moldau.broker.coordinators.share_group_commands import (
    all_succeeded,
    delete_states,
    initialize_states,
    read_summaries,
)
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply
from moldau.coordinator.group.group import RequestOfGroup
from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share.events import (
    AlterOffsets,
    DeleteOffsets,
    ListStates,
    OffsetsToAlter,
    StatesDeleted,
    StatesInitialized,
    StatesToDelete,
)
from moldau.coordinator.share_coordinator.events import StateAnswer
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from moldau.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from moldau.protocol.refusals import refused
from moldau.protocol.schema import ZERO_UUID
from moldau.replication.share.sessions import SESSION_PARTITIONS_MAX
from moldau.security.access import AclOperation, ResourceKind

NOTHING_TO_DELETE: Final = "There is no offset information to delete."
NOT_KNOWN: Final = -1
TEXTS: Final = {
    error: ERROR_TEXTS[error] for error in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID)
}
"""The messages of errors of a whole request."""


def submit(
    services: Services, group_id: str, event_of: Callable[[Waiter], RequestOfGroup], answered: Callable[[object], None]
) -> None:
    """Submit an event to the state machine of a group. `answered` gets its answer, or a `Refusal`."""
    runner = services.groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        answered(Refusal(runner, ERROR_TEXTS.get(runner)))
    else:
        runner.submit(event_of(Waiter(ReplyToken(answered, lambda answer: answer), 0)))


def error_of(services: Services, context: RequestContext, group_id: str, operation: AclOperation) -> ErrorCode:
    """The error of a request that is known without looking up its group; NONE if there is none."""
    if not services.cluster.image.features.levels.get(SHARE_VERSION, 0):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.access.allows(operation, ResourceKind.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID


def hidden_topics(
    context: RequestContext, request: AlterShareGroupOffsetsRequest | DeleteShareGroupOffsetsRequest
) -> set[str]:
    """The names of the topics in a request that the client may not read."""
    names = [topic.topic_name for topic in request.topics]
    return {name for name in names if not context.access.allows(AclOperation.READ, ResourceKind.TOPIC, name)}


# Describing


class GroupStates(NamedTuple):
    """The description of a group so far, and the share coordinator's answers about its other share partitions."""

    described: DescribeShareGroupOffsetsResponseGroup
    answers: Answers


def describe(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Pending[DescribeShareGroupOffsetsResponse]:
    """Read the states of each group, then describe them in slices."""
    reply: Pending[Any] = Pending(waits_for=COORDINATOR)
    groups: Pending[list[GroupStates]] = join_answers(
        [read_states(services, context, group) for group in request.groups], list
    )
    groups.listen(lambda read: reply.follow(services.long_requests.answer(context, describe_states(services, read))))
    return reply


def read_states(
    services: Services, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> Reply[GroupStates]:
    """Ask the share coordinator for the start offsets of one group."""
    described = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
    error = error_of(services, context, group.group_id, AclOperation.DESCRIBE)
    if error not in (ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID):  # The machine answers what an empty id gets.
        described.error_code = error
        return GroupStates(described, {})
    reply: Pending[GroupStates] = Pending(waits_for=COORDINATOR)

    def listed(answer: object) -> None:
        if isinstance(answer, Refusal):
            described.error_code, described.error_message = answer
            reply.complete(GroupStates(described, {}))
            return
        assert isinstance(answer, Mapping)
        read((topic_id, sorted(answer[topic_id]) if may_see(topic_id) else ()) for topic_id in answer)

    def may_see(topic_id: bytes) -> bool:
        topic = services.cluster.image.topics.by_id.get(topic_id)
        return topic is not None and context.access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic.name)

    def read(states: Iterable[tuple[bytes, Iterable[int]]]) -> None:
        read_summaries(
            services.share_persister,
            group.group_id,
            states,
            lambda answers: reply.complete(GroupStates(described, answers)),
        )

    if group.topics is None:
        submit(services, group.group_id, lambda waiter: ListStates(waiter, group.group_id), listed)
    else:
        read(named_states(services, context, group.topics, described))
    return reply


def named_states(
    services: Services,
    context: RequestContext,
    topics: Iterable[DescribeShareGroupOffsetsRequestTopic],
    described: DescribeShareGroupOffsetsResponseGroup,
) -> list[tuple[bytes, Iterable[int]]]:
    """The share partitions that a client names, by topic id. A topic that does not exist, or that the client may not
    describe, is added to the description instead: it has no start offsets."""
    states: dict[bytes, Iterable[int]] = {}
    for named in topics:
        topic = services.cluster.image.topics.by_name(named.topic_name)
        error = ErrorCode.NONE
        if not context.access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, named.topic_name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is not None and error is ErrorCode.NONE:
            states[topic.id] = named.partitions
            continue
        entries = [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=NOT_KNOWN, leader_epoch=0, error_code=error
            )
            for index in named.partitions
        ]
        described.topics.append(
            DescribeShareGroupOffsetsResponseTopic(topic_name=named.topic_name, topic_id=ZERO_UUID, partitions=entries)
        )
    return [*states.items()]


def describe_states(services: Services, groups: list[GroupStates]) -> Answering:
    """Complete the descriptions of groups, and ask the leaders of partitions for the ends of the lags. The response is
    complete when all leaders have answered."""
    reply: Pending[DescribeShareGroupOffsetsResponse] = Pending(waits_for=COORDINATOR)
    left = 1
    """The number of leaders that have not answered, and one until all are asked."""

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            reply.complete(DescribeShareGroupOffsetsResponse(groups=[group.described for group in groups]))

    def end_known(
        entry: DescribeShareGroupOffsetsResponsePartition, answer: StateAnswer, latest: int | ErrorCode
    ) -> None:
        if isinstance(latest, ErrorCode):
            entry.error_code, entry.start_offset = latest, 0
        else:
            entry.lag = latest - answer.start_offset - answer.delivery_complete_count
        one_ended()

    for described, answers in groups:
        topics: dict[bytes, DescribeShareGroupOffsetsResponseTopic] = {}
        for (topic_id, index), answer in answers.items():
            yield
            topic = topics.get(topic_id)
            if topic is None:
                known = services.cluster.image.topics.by_id.get(topic_id)
                name = "" if known is None else known.name
                topic = topics[topic_id] = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
                described.topics.append(topic)
            is_known = answer.error is ErrorCode.NONE
            entry = DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=answer.start_offset if is_known else NOT_KNOWN,
                leader_epoch=answer.leader_epoch if is_known else 0,
            )
            topic.partitions.append(entry)
            if is_known and answer.start_offset != NOT_KNOWN and answer.delivery_complete_count != NOT_KNOWN:
                left += 1
                services.latest_offsets.ask(topic.topic_name, index, partial(end_known, entry, answer))
    one_ended()
    return reply


# Altering


def alter(services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> object:
    group_id = request.group_id
    error = error_of(services, context, group_id, AclOperation.READ)
    if error is not ErrorCode.NONE:
        return refused(request, context.version, error, TEXTS.get(error))
    reply: Pending[object] = Pending(waits_for=COORDINATOR)
    hidden = hidden_topics(context, request)
    offsets = tuple(
        (topic.topic_name, each.partition_index, each.start_offset)
        for topic in request.topics
        for each in topic.partitions
        if topic.topic_name not in hidden
    )

    def decided(answer: object) -> None:
        if isinstance(answer, Refusal):
            reply.complete(refused(request, context.version, *answer))
            return
        assert isinstance(answer, OffsetsToAlter)
        initialize_states(services.share_persister, group_id, answer.state_epoch, answer.offsets, stored)

    def stored(answers: Answers) -> None:
        runner = services.groups.runner_of(group_id)
        if not isinstance(runner, ErrorCode) and all_succeeded(answers):
            runner.submit(StatesInitialized(group_id, all_succeeded(answers)))
        reply.complete(alter_response(services, request, hidden, answers))

    submit(services, group_id, lambda waiter: AlterOffsets(waiter, group_id, offsets), decided)
    return reply


def alter_response(
    services: Services, request: AlterShareGroupOffsetsRequest, hidden: set[str], answers: Answers
) -> AlterShareGroupOffsetsResponse:
    response = AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        known = services.cluster.image.topics.by_name(topic.topic_name)
        topic_id = ZERO_UUID if known is None or topic.topic_name in hidden else known.id
        result = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id)
        for each in topic.partitions:
            answer = answers.get((topic_id, each.partition_index))
            if topic.topic_name in hidden:
                answer = StateAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif answer is None:
                answer = unknown_topic_answer()
            result.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index, error_code=answer.error, error_message=answer.message
                )
            )
        response.responses.append(result)
    return response


# Deleting


def delete(services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> object:
    group_id = request.group_id
    error = error_of(services, context, group_id, AclOperation.DELETE)
    if error is not ErrorCode.NONE:
        return refused(request, context.version, error, TEXTS.get(error))
    reply: Pending[object] = Pending(waits_for=COORDINATOR)
    names, hidden = [topic.topic_name for topic in request.topics], hidden_topics(context, request)
    visible = tuple(name for name in names if name not in hidden)
    answers: dict[tuple[bytes, int], StateAnswer] = {}

    def decided(answer: object) -> None:
        if isinstance(answer, Refusal):
            reply.complete(refused(request, context.version, *answer))
            return
        assert isinstance(answer, StatesToDelete)
        delete_states(services.share_persister, group_id, answer.states, deleted)

    def deleted(found: Answers) -> None:
        answers.update(found)
        failed = {topic_id for (topic_id, _), answer in found.items() if answer.error is not ErrorCode.NONE}
        done = frozenset(topic_id for topic_id, _ in found if topic_id not in failed)
        submit(services, group_id, lambda waiter: StatesDeleted(waiter, group_id, done), noted)

    def noted(answer: object) -> None:
        reply.complete(delete_response(services, names, hidden, answers))

    submit(services, group_id, lambda waiter: DeleteOffsets(waiter, group_id, visible), decided)
    return reply


def unknown_topic_answer() -> StateAnswer:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return StateAnswer(error, ERROR_TEXTS[error])


def delete_response(
    services: Services, names: Iterable[str], hidden: set[str], answers: Answers
) -> DeleteShareGroupOffsetsResponse:
    response = DeleteShareGroupOffsetsResponse()
    by_topic: defaultdict[bytes, list[StateAnswer]] = defaultdict(list)
    for (topic_id, _), each in answers.items():
        by_topic[topic_id].append(each)
    for name in names:
        topic = services.cluster.image.topics.by_name(name)
        answer = unknown_topic_answer()
        topic_id = ZERO_UUID
        if name in hidden:
            answer = StateAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is not None:
            found = by_topic[topic.id]
            failed = [each for each in found if each.error is not ErrorCode.NONE]
            topic_id = topic.id if found else ZERO_UUID
            answer = StateAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE)
            if found:
                answer = failed[0] if failed else StateAnswer()
        response.responses.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=topic_id, error_code=answer.error, error_message=answer.message
            )
        )
    return response


APIS: Final = (
    Api(
        DescribeShareGroupOffsetsRequest,
        broker=describe,
        needs=handler_asks,
        lists=[in_parts("groups.topics.partitions", "groups.topics.partitions")],
    ),
    Api(AlterShareGroupOffsetsRequest, broker=alter, needs=handler_asks, lists=[at_most(SESSION_PARTITIONS_MAX)]),
    Api(DeleteShareGroupOffsetsRequest, broker=delete, needs=handler_asks, lists=[at_most(SESSION_PARTITIONS_MAX)]),
)
