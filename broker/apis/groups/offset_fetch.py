"""OffsetFetch (API key 9, versions 1-10; KIP-447, KIP-709, KIP-848): reads the committed offsets of groups.

2: an error for the whole group · 7: with `require_stable`, the response waits until the outcome of earlier commits is
known, and a partition with an offset in an open transaction has the error UNSTABLE_OFFSET_COMMIT (KIP-447) · 8: several
groups (KIP-709) · 9: member epochs · 10: topics by id (KIP-848).
"""

from __future__ import annotations

from typing import Any, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.needs import Answer, change_response, on_group, on_topic, split_by_need, topic_by_id, with_field
from moldau.broker.apis.parts import LIGHT_SIZE, Answering, ListPath, PartRules, consume_elements
from moldau.broker.apis.services import Services
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply
from moldau.coordinator.group.events import FetchStableOffsets
from moldau.coordinator.offsets.offset_fetch import NO_OFFSET, AllOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.protocol.refusals import refused_with_text
from moldau.security.access import AclOperation

GROUPS_VERSION: Final = 8
"""The first version in which a request has several groups."""
GROUP_ERROR_VERSION: Final = 2
"""The first version with an error code for the whole group."""
TOPIC_ID_VERSION: Final = 10
"""The first version in which requests name topics by id."""
Fetched = OffsetFetchResponseGroup | AllOffsets


def handle(services: Services, context: RequestContext, request: OffsetFetchRequest) -> Pending[OffsetFetchResponse]:
    """Fetch the offsets of each group, and make the response of them. Offsets of all topics of a group become results
    in slices."""
    version = context.version
    groups = request.groups if version >= GROUPS_VERSION else [single_group(request)]
    unknown = [replace_topic_ids(services.cluster, group, version) for group in groups]
    answers = [fetch_offsets(services, group, version, require_stable=request.require_stable) for group in groups]
    reply: Pending[Any] = Pending(waits_for=COORDINATOR)
    fetched: Pending[list[Any]] = join_answers(answers, list)
    fetched.listen(
        lambda found: reply.follow(services.long_requests.answer(context, _response(services, context, found, unknown)))
    )
    return reply


def fetch_offsets(
    services: Services, group: OffsetFetchRequestGroup, version: int, *, require_stable: bool
) -> Reply[Fetched]:
    """Fetch the offsets of one group of a request, whose topics have names."""
    runner = services.groups.runner_of(group.group_id)
    if not isinstance(runner, ErrorCode) and not require_stable:
        return runner.shard.offsets(group)
    return submit_event(
        runner,
        version,
        lambda waiter: FetchStableOffsets(waiter, group),
        lambda error: refused(group, error, version),
    )


def _response(
    services: Services, context: RequestContext, found: list[Fetched], unknown: list[list[OffsetFetchResponseTopics]]
) -> Answering:
    """Make the response of the answers for all groups. `unknown` has for each group the results of topic ids that do
    not exist. Of all topics of a group, those are shown that still exist and that the client may describe."""
    cluster, version, groups = services.cluster, context.version, []

    def new_topic(name: str) -> OffsetFetchResponseTopics | None:
        topic = OffsetFetchResponseTopics(name=name)
        is_there = version < TOPIC_ID_VERSION or set_topic_id(cluster, topic)
        return topic if is_there and on_topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access) else None

    for answer, of_unknown in zip(found, unknown, strict=True):
        if isinstance(answer, AllOffsets):
            groups.append((yield from answer.pieces(new_topic)))
            continue
        if version >= TOPIC_ID_VERSION:
            answer.topics = [topic for topic in answer.topics if set_topic_id(cluster, topic)]
        if answer.error_code == ErrorCode.NONE:  # As in Apache Kafka, a group that is refused has no topics.
            answer.topics.extend(of_unknown)
        groups.append(answer)
    if version >= GROUPS_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in consume_elements(group.topics):
        older = OffsetFetchResponseTopic(name=topic.name)
        response.topics.append(older)
        for partition in topic.partitions:
            older.partitions.append(older_result(partition))
            if isinstance(answer, AllOffsets):  # A request that names its topics is handled in parts, and this is one.
                yield
    return response


def set_topic_id(cluster: ClusterView, topic: OffsetFetchResponseTopics) -> bool:
    """Set the id of a topic in a response. Returns False if the topic does not exist any more."""
    known = cluster.image.topics.by_name(topic.name)
    if known is None:
        return False
    topic.topic_id = known.id
    return True


def single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Convert a request of versions 1 to 7 into the group element of later versions."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def replace_topic_ids(
    cluster: ClusterView, group: OffsetFetchRequestGroup, version: int
) -> list[OffsetFetchResponseTopics]:
    """Replace the topic ids in a request by names. Returns results with errors for the ids that do not exist."""
    if version < TOPIC_ID_VERSION or group.topics is None:
        return []
    unknown: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        found = cluster.image.topics.by_id.get(topic.topic_id)
        if found is None:
            unknown.append(no_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return unknown


def refused(group: OffsetFetchRequestGroup, error: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    if version >= GROUP_ERROR_VERSION:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
    topics = [no_offsets(topic, error) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def no_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)
            for index in topic.partition_indexes
        ],
    )


def older_result(result: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    """Convert the result of a partition into that of versions 1 to 7."""
    return OffsetFetchResponsePartition(
        partition_index=result.partition_index,
        committed_offset=result.committed_offset,
        committed_leader_epoch=result.committed_leader_epoch,
        metadata=result.metadata,
        error_code=result.error_code,
    )


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: DESCRIBE on each group and each named topic. The handler finds the allowed ones of all topics."""
    assert isinstance(request, OffsetFetchRequest)
    if context.version < GROUPS_VERSION:
        return _offsets_of_one(services, context, request, answer)
    denied_groups: dict[int, OffsetFetchResponseGroup] = {}
    asked = []
    denied_topics: list[list[OffsetFetchResponseTopics]] = []
    for place, each in enumerate(request.groups):
        if not on_group(AclOperation.DESCRIBE, each.group_id).is_met(context.access):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied_groups[place] = OffsetFetchResponseGroup(group_id=each.group_id, error_code=error)
            continue
        allowed, denied = _divided(services, context, each)
        asked.append(allowed)
        denied_topics.append(denied)

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        found = iter(zip(response.groups, denied_topics, strict=True))
        groups = []
        for place in range(len(request.groups)):
            if place in denied_groups:
                groups.append(denied_groups[place])
                continue
            answered, denied = next(found)
            if answered.error_code == ErrorCode.NONE:
                answered.topics.extend(denied)
            groups.append(answered)
        response.groups = groups
        return response

    return change_response(answer(context, with_field(request, "groups", asked)), add)


def _divided(
    services: Services, context: RequestContext, each: OffsetFetchRequestGroup
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """Split the topics of a group's element: returns it with the allowed topics, and refusals for the others."""
    if each.topics is None:
        return each, []
    allowed, denied = split_by_need(services, context, each.topics, _described)
    refusals = [no_offsets(wish, error) for wish, error in denied]
    return with_field(each, "topics", allowed), refusals


_described = topic_by_id(AclOperation.DESCRIBE, TOPIC_ID_VERSION)


def _offsets_of_one(services: Services, context: RequestContext, request: OffsetFetchRequest, answer: Answer) -> object:
    """The rule for versions 1 to 7, whose requests have one group."""
    access, asked = context.access, single_group(request)
    if not on_group(AclOperation.DESCRIBE, request.group_id).is_met(access):
        return refused_with_text(request, context.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.topics is None:
        return answer(context, request)
    allowed = [each for each in request.topics if on_topic(AclOperation.DESCRIBE, each.name).is_met(access)]
    names = {each.name for each in allowed}
    denied = [
        no_offsets(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in asked.topics or () if each.name not in names
    ]

    def add(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if denied and response.error_code == ErrorCode.NONE:
            response.topics.extend(
                OffsetFetchResponseTopic(name=each.name, partitions=[older_result(one) for one in each.partitions])
                for each in denied
            )
        return response

    return change_response(answer(context, with_field(request, "topics", allowed)), add)


API: Final = Api(
    OffsetFetchRequest,
    broker=handle,
    needs=acl_rule,
    lists=[
        PartRules(
            (
                ListPath("groups.topics.partition_indexes", "groups.topics.partitions"),
                ListPath("topics.partition_indexes", "topics.partitions"),
            ),
            size=LIGHT_SIZE,
        )
    ],
)
