"""ShareAcknowledge (API key 79, versions 1-2; KIP-932, KIP-1222): a member of a share group acknowledges records.

2: a lock may be renewed (KIP-1222). The response is sent when the share coordinator has stored the changes.
`acknowledge` also handles the acknowledgements in a ShareFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import handler_asks
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.records.current_leaders import Leaders
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending
from moldau.coordinator.share.heartbeat import MEMBER_ID_LENGTH_MAX
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from moldau.protocol.messages.share_fetch import FetchPartition, ShareFetchRequest
from moldau.replication.share.changes import ACKNOWLEDGE_RENEW, AcknowledgementBatch
from moldau.replication.share.sessions import FINAL_EPOCH, SESSION_PARTITIONS_MAX, SessionKey, SessionPartition
from moldau.security.access import AclOperation, ResourceKind

RENEW_VERSION: Final = 2
"""The first version in which locks may be renewed, and the record limit of a ShareFetch may be strict."""
LEADER_MOVED_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class AcknowledgeResult(NamedTuple):
    """The result of the acknowledgements of one partition."""

    error: ErrorCode
    message: str | None = None


Outcomes: TypeAlias = dict[SessionPartition, AcknowledgeResult]
AboutPartition: TypeAlias = AcknowledgePartition | FetchPartition


def handle(services: Services, context: RequestContext, request: ShareAcknowledgeRequest) -> object:
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    error = refusal_of(services, context, group_id, member_id)
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    assert group_id is not None and member_id is not None
    key = SessionKey(group_id, member_id)
    error = services.share_sessions.acknowledge(key, epoch)
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    reply: Pending[ShareAcknowledgeResponse] = Pending(waits_for=COORDINATOR)

    def ended(outcomes: Outcomes) -> None:
        if epoch == FINAL_EPOCH:
            release_session(services, key)
        reply.complete(response_of(services, context, group_id, outcomes))

    def acknowledging() -> Answering:
        yield from acknowledge(services, context, key, partitions_in(request), ended, is_renewal=request.is_renew_ack)
        return reply

    return services.long_requests.answer(context, acknowledging())


def partitions_in(
    request: ShareAcknowledgeRequest | ShareFetchRequest,
) -> Iterator[tuple[SessionPartition, AboutPartition]]:
    """The partitions in a request, with their elements."""
    for topic in request.topics:
        for each in topic.partitions:
            yield SessionPartition(topic.topic_id, each.partition_index), each


def refusal_of(services: Services, context: RequestContext, group_id: str | None, member_id: str | None) -> ErrorCode:
    """The error of a member's request that is known without its share session; NONE if there is none."""
    if services.cluster.image.features.levels.get(SHARE_VERSION, 0) < 1:
        return ErrorCode.UNSUPPORTED_VERSION
    if group_id is None:
        return ErrorCode.INVALID_REQUEST
    if not context.access.allows(AclOperation.READ, ResourceKind.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def release_session(services: Services, key: SessionKey) -> None:
    """End the share session of a member, and release the records that it has acquired."""
    for topic_id, index in services.share_sessions.remove(key):
        shared = services.share_partitions.find(ShareKey(key.group_id, topic_id, index))
        if shared is not None:
            shared.release(key.member_id)
    if not services.share_sessions.has_group(key.group_id):
        # The offsets of the group may be set anew now: what was in flight is forgotten.
        services.share_partitions.on_group_left(key.group_id)


def release_sessions_of(services: Services, connection: object) -> None:
    """End the share sessions of the members that fetched through a connection, because it is lost."""
    for key in services.share_sessions.keys_of(connection):
        release_session(services, key)


def acknowledge(
    services: Services,
    context: RequestContext,
    key: SessionKey,
    asked: Iterable[tuple[SessionPartition, AboutPartition]],
    ended: Callable[[Outcomes], None],
    *,
    is_renewal: bool,
) -> Iterator[None]:
    """Acknowledge records, and call `ended` once with the outcome for each partition. Yields after each partition, so
    that other tasks run."""
    outcomes: Outcomes = {}
    wanted: dict[SessionPartition, list[AcknowledgementBatch]] = {}
    for partition, about in asked:
        batches = list(batches_of(about))
        error = error_of(services, context, partition, batches, is_renewal=is_renewal)
        if error is not ErrorCode.NONE:
            outcomes[partition] = AcknowledgeResult(error)
        else:
            wanted[partition] = batches
        yield
    if not any(wanted.values()):
        # If nothing is acknowledged, partitions without batches are not answered.
        wanted.clear()
    open_count = len(wanted)
    if not open_count:
        ended(outcomes)
        return

    def answered(partition: SessionPartition, error: ErrorCode, message: str | None) -> None:
        nonlocal open_count
        outcomes[partition] = AcknowledgeResult(error, message)
        open_count -= 1
        if not open_count:
            ended(outcomes)

    for partition, batches in wanted.items():
        shared = services.share_partitions.find(ShareKey(key.group_id, *partition))
        if not batches:
            answered(partition, ErrorCode.NONE, None)
        elif shared is None:
            answered(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        else:
            shared.acknowledge(key.member_id, batches, partial(answered, partition))
        yield


def batches_of(about: AboutPartition) -> Iterator[AcknowledgementBatch]:
    for each in about.acknowledgement_batches:
        yield AcknowledgementBatch(each.first_offset, each.last_offset, each.acknowledge_types)


def error_of(
    services: Services,
    context: RequestContext,
    partition: SessionPartition,
    batches: Sequence[AcknowledgementBatch],
    *,
    is_renewal: bool,
) -> ErrorCode:
    """The error of a partition's acknowledgements that is known without the share partition; NONE if there is none."""
    topic = services.cluster.image.topics.by_id.get(partition.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    last_type = ACKNOWLEDGE_RENEW if context.version >= RENEW_VERSION else ACKNOWLEDGE_RENEW - 1
    end_offset = -1
    for first, last, types in batches:
        is_ordered = end_offset <= first <= last
        fits = len(types) == 1 or (types and last - first == len(types) - 1)
        if not is_ordered or not fits or not all(0 <= each <= last_type for each in types):
            return ErrorCode.INVALID_REQUEST
        if ACKNOWLEDGE_RENEW in types and not is_renewal:
            return ErrorCode.INVALID_REQUEST
        end_offset = last
    if not context.access.allows(AclOperation.READ, ResourceKind.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if partition.partition in topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def response_of(
    services: Services, context: RequestContext, group_id: str, outcomes: Mapping[SessionPartition, AcknowledgeResult]
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders = Leaders(services, context.listener.name)
    for (topic_id, index), (error, message) in outcomes.items():
        data = PartitionData(
            partition_index=index,
            error_code=error,
            error_message=message,
            current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1),
        )
        if error in LEADER_MOVED_ERRORS:
            data.current_leader = leaders.of((topic_id, index), LeaderIdAndEpoch)
        topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id)).partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=services.share_partitions.settings_of(group_id).limits.lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=leaders.endpoints(NodeEndpoint),
    )


SHARED_MAX: Final = 10_000
"""The most acknowledgements in one request. Not many more records can be in flight."""
BATCHES: Final = "topics.partitions.acknowledgement_batches"
ACKNOWLEDGED: Final = at_most(SHARED_MAX, BATCHES, f"{BATCHES}.acknowledge_types")
"""Limits the lists of acknowledgements."""

API: Final = Api(
    ShareAcknowledgeRequest,
    broker=handle,
    needs=handler_asks,
    lists=[at_most(SESSION_PARTITIONS_MAX, "topics", "topics.partitions"), ACKNOWLEDGED],
)
