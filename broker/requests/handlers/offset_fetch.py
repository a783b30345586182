"""OffsetFetch (API key 9, versions 1-10; KIP-447, KIP-709, KIP-848): reads the committed offsets of groups.

KIP-447: with `require_stable` the response waits until earlier commits are decided, and says UNSTABLE_OFFSET_COMMIT of
a partition with an offset in an open transaction. KIP-709: several groups in one request. KIP-848: member epochs, and
topic ids from version 10 on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.requests.handlers.coordinator_request import join_answers, submit_event
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.events import FetchStableOffsets
from moldau.coordinator.offsets.offset_fetch import NO_OFFSET
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
from moldau.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services

GROUPS_VERSION: Final = 8
"""From this version on a request has several groups."""
GROUP_ERROR_VERSION: Final = 2
"""Before this version only partitions have an error code."""
TOPIC_ID_VERSION: Final = 10
"""From this version on requests name topics by id."""


def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Pending[OffsetFetchResponse]:
    version = context.version
    groups = request.groups if version >= GROUPS_VERSION else [single_group(request)]
    if not groups:
        return OffsetFetchResponse()
    answers = [fetch_offsets(services, group, version, require_stable=request.require_stable) for group in groups]
    return join_answers(answers, lambda answers: in_version(answers, version))


def fetch_offsets(
    services: Services, group: OffsetFetchRequestGroup, version: int, *, require_stable: bool
) -> OffsetFetchResponseGroup | Pending[OffsetFetchResponseGroup]:
    """Fetch the offsets of one group of a request."""
    cluster = services.cluster
    response_of = partial(with_unknown, cluster, by_name(cluster, group, version), version)
    runner = services.groups.runner_of(group.group_id)
    if not isinstance(runner, ErrorCode) and not require_stable:
        return response_of(runner.shard.offsets(group))
    return submit_event(
        runner,
        version,
        lambda waiter: FetchStableOffsets(waiter, group),
        lambda error: refused(group, error, version),
        response_of,
    )


def with_unknown(
    cluster: ClusterView, unknown: list[OffsetFetchResponseTopics], version: int, response: object
) -> OffsetFetchResponseGroup:
    """The offsets of a group, with the ids of the topics and the results of topics that do not exist."""
    assert isinstance(response, OffsetFetchResponseGroup)
    if version >= TOPIC_ID_VERSION:
        response.topics = [topic for topic in response.topics if identify(cluster, topic)]
    response.topics.extend(unknown)
    return response


def identify(cluster: ClusterView, topic: OffsetFetchResponseTopics) -> bool:
    """Add the topic's id; False where the topic does not exist any more."""
    known = cluster.image.topics.by_name(topic.name)
    if known is None:
        return False
    topic.topic_id = known.id
    return True


def single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request of versions 1 to 7 in the form of the later ones."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def by_name(cluster: ClusterView, group: OffsetFetchRequestGroup, version: int) -> list[OffsetFetchResponseTopics]:
    """Replace the topic ids of a request by names. Returns the results for the ids that do not exist."""
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


def in_version(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    """The response in the form that the version of the request defines."""
    if version >= GROUPS_VERSION:
        if version < TOPIC_ID_VERSION:
            for topic in (topic for group in groups for topic in group.topics):
                topic.topic_id = ZERO_UUID
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
