"""OffsetCommit (API key 8, versions 2-10; KIP-211, KIP-320, KIP-345, KIP-848): stores the offsets of a group.

2-4: the client sets the retention (KIP-211) · 6: leader epochs (KIP-320) · 7: static members (KIP-345) · 9: member
epochs · 10: topics by id (KIP-848). Only offsets of partitions that exist are stored.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.needs import all_of, elements_rule, needs, on_group, topic_by_id
from moldau.broker.apis.parts import RECORDS_SIZE, cut
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.events import CommitOffsets
from moldau.coordinator.offsets.offset_commit import same_for_all
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

TOPIC_ID_VERSION: Final = 10
"""From this version on requests name topics by id."""


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    by_id = context.version >= TOPIC_ID_VERSION
    merge = partial(merged, divide(services.cluster, request, by_id), by_id)
    if not request.topics:
        return merge(OffsetCommitResponse())
    return submit_event(
        services.groups.runner_of(request.group_id),
        context.version,
        lambda waiter: CommitOffsets(waiter, request),
        lambda error: merge(same_for_all(request, error)),
        merge,
    )


def merged(refused: list[OffsetCommitResponseTopic], by_id: bool, response: object) -> OffsetCommitResponse:
    """The response: the coordinator's results beside those of partitions that do not exist."""
    assert isinstance(response, OffsetCommitResponse)
    merged = OffsetCommitResponse(topics=list(refused))
    known = {(topic.name, topic.topic_id): topic for topic in merged.topics}
    for topic in response.topics:
        if not by_id:
            topic.topic_id = ZERO_UUID
        before = known.get((topic.name, topic.topic_id))
        if before is None:
            merged.topics.append(topic)
        else:
            before.partitions.extend(topic.partitions)
    return merged


def divide(cluster: ClusterView, request: OffsetCommitRequest, by_id: bool) -> list[OffsetCommitResponseTopic]:
    """Leave the partitions that exist in the request. Returns the results of the others."""
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        accept(cluster, topic, by_id, accepted, refused)
    request.topics = accepted
    return refused


def accept(
    cluster: ClusterView,
    topic: OffsetCommitRequestTopic,
    by_id: bool,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> None:
    """Divide the partitions of a topic: those that exist, under its name and id, and those that do not."""
    topics = cluster.image.topics
    known = topics.by_id.get(topic.topic_id) if by_id else topics.by_name(topic.name)
    error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    existing = () if known is None else known.partitions
    missing = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
        for partition in topic.partitions
        if partition.partition_index not in existing
    ]
    if missing:
        name = known.name if by_id and known is not None else topic.name
        refused.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=missing))
    found = [partition for partition in topic.partitions if partition.partition_index in existing]
    if known is not None and found:
        accepted.append(OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=found))


API: Final = Api(
    OffsetCommitRequest,
    broker=handle,
    needs=all_of(
        needs(on_group, AclOperation.READ, "group_id"),
        elements_rule("topics", "topics", topic_by_id(AclOperation.READ, TOPIC_ID_VERSION)),
    ),
    lists=[cut("topics.partitions", size=RECORDS_SIZE)],
)
