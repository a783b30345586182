"""ListOffsets (API key 2, versions 1-11; KIP-79, KIP-207, KIP-320, KIP-405, KIP-734, KIP-1005): finds an offset.

1: the offset for a timestamp, or the earliest or latest offset (KIP-79) · 2: up to the last stable offset (KIP-98) · 4:
leader epochs (KIP-320) · 5: a leader that does not know its high watermark yet answers OFFSET_NOT_AVAILABLE (KIP-207) ·
7: the offset of the largest timestamp (KIP-734) · 8: the earliest of the local log (KIP-405) · 9: the latest in remote
storage (KIP-1005) · 10: a timeout (KIP-1075) · 11: the earliest that is not in remote storage (KIP-1023). A timestamp
is searched in remote storage first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.apis.api import Api
from moldau.broker.apis.forwarding import close_on_failure
from moldau.broker.apis.needs import each_in, on_topic
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import DISK, Pending, Reply
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.refusals import refused
from moldau.protocol.schema import VERSION_MAX
from moldau.replication.fetch_plan import READ_COMMITTED, READ_UNCOMMITTED
from moldau.replication.partition import Partition
from moldau.security.access import AclOperation
from moldau.storage.log.log import Log

if TYPE_CHECKING:
    from moldau.broker.tiering.remote_source import RemoteOffsets

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

FIRST_VERSIONS: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version with each special timestamp. It is refused in a request of an earlier version."""
CONSUMER_REPLICA_ID: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


def handle(services: Services, context: RequestContext, request: ListOffsetsRequest) -> Reply[ListOffsetsResponse]:
    """Find offsets. The response is returned at once, unless a search of remote storage is needed."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        response: ListOffsetsResponse = refused(request, context.version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return response
    remote: list[RemoteSearch] = []
    asked = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    topics = []
    for topic in request.topics:
        answers = []
        for requested in topic.partitions:
            times = asked.pop((topic.name, requested.partition_index), 0)
            if times == 0:
                continue  # the request names the partition several times, and it was refused already
            partition = services.replicas.find((topic.name, requested.partition_index))
            if times > 1:
                answers.append(_refused(requested, ErrorCode.INVALID_REQUEST))
            elif requested.timestamp < 0 and context.version < FIRST_VERSIONS.get(requested.timestamp, VERSION_MAX):
                answers.append(_refused(requested, ErrorCode.UNSUPPORTED_VERSION))
            elif partition is None:
                answers.append(_refused(requested, services.replicas.error_of(topic.name, requested.partition_index)))
            else:
                is_tiered = partition.log.local_start_offset > partition.log.log_start_offset
                if requested.timestamp >= 0 and is_tiered and services.remote_offsets is not None:
                    remote.append(RemoteSearch(partition, requested, answers, len(answers)))
                answers.append(_answer(request, requested, partition))
        if answers:  # As in Apache Kafka: a topic without partitions has no result.
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    return _search_remotely(services, context, request, response, remote) if remote else response


class RemoteSearch(NamedTuple):
    """A partition for whose timestamp remote storage must be searched."""

    partition: Partition
    requested: ListOffsetsPartition
    answers: list[ListOffsetsPartitionResponse]
    slot: int
    """The index of the partition's answer in `answers`. It has the offset from the local log."""


def _search_remotely(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    response: ListOffsetsResponse,
    searches: list[RemoteSearch],
) -> Pending[ListOffsetsResponse]:
    """Search remote storage for the timestamps of all partitions without an error. An offset found there is earlier
    than every local one, so it replaces the offset from the local log."""
    offsets = services.remote_offsets
    assert offsets is not None
    reply: Pending[ListOffsetsResponse] = Pending(waits_for=DISK)
    timeout_ms = services.settings.config.integer("remote.list.offsets.request.timeout.ms")
    if request.timeout_ms > 0:
        timeout_ms = request.timeout_ms

    async def search() -> None:
        left = deque(searches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while left:
                    await _search(offsets, left[0])
                    left.popleft()
        for each in left:
            each.answers[each.slot] = _refused(each.requested, ErrorCode.REQUEST_TIMED_OUT)
        reply.complete(response)

    services.spawn(close_on_failure(context.connection, search()))
    return reply


async def _search(offsets: RemoteOffsets, each: RemoteSearch) -> None:
    answer = each.answers[each.slot]
    if answer.error_code != ErrorCode.NONE:
        return
    found = await offsets.find(each.partition, each.requested.timestamp)
    if isinstance(found, ErrorCode):
        each.answers[each.slot] = _refused(each.requested, found)
    elif found is not None:
        answer.timestamp, answer.offset, answer.leader_epoch = found.timestamp, found.offset, found.leader_epoch


def _earliest_pending_upload(log: Log) -> int:
    """The first offset that is not in remote storage; -1 if it is not known yet, or if the topic is not tiered."""
    if not log.config.is_tiered or (not log.tiered_end_offset and log.local_start_offset > log.log_start_offset):
        return NO_OFFSET
    return max(log.tiered_end_offset, log.log_start_offset)


POSITIONS: Final[dict[int, Callable[[Log], int]]] = {
    EARLIEST: lambda log: log.log_start_offset,
    EARLIEST_LOCAL: lambda log: log.local_start_offset,
    LATEST_TIERED: lambda log: log.tiered_end_offset - 1 if log.config.is_tiered else NO_OFFSET,
    EARLIEST_PENDING_UPLOAD: _earliest_pending_upload,
}
"""The functions that give the offsets for special timestamps that need no search."""


def _refused(requested: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=error)


def _answer(
    request: ListOffsetsRequest, requested: ListOffsetsPartition, partition: Partition
) -> ListOffsetsPartitionResponse:
    refusal = partition.check_leader_epoch(requested.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return _refused(requested, refusal)
    leadership = partition.leadership
    if leadership is None:
        return _refused(requested, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    its_log = partition.log
    end_offset = its_log.end_offset
    is_consumer = request.replica_id == CONSUMER_REPLICA_ID
    if is_consumer:
        is_committed = request.isolation_level == READ_COMMITTED
        end_offset = partition.last_stable_offset if is_committed else partition.high_watermark
    answer = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
    # The high watermark counts also if the consumer reads to the last stable offset: a transaction may stay open.
    # A new leader does not know yet how much of its log is committed: an offset from it could later decrease.
    is_behind = is_consumer and partition.high_watermark < leadership.epoch_start_offset
    if requested.timestamp == LATEST and is_behind:
        return _refused(requested, ErrorCode.OFFSET_NOT_AVAILABLE)
    if requested.timestamp == LATEST:
        answer.offset = end_offset
        answer.leader_epoch = partition.leader_epoch
    elif requested.timestamp in POSITIONS:
        offset = POSITIONS[requested.timestamp](its_log)
        if requested.timestamp == EARLIEST_PENDING_UPLOAD and offset >= end_offset:
            if is_behind:
                return _refused(requested, ErrorCode.OFFSET_NOT_AVAILABLE)
            offset = NO_OFFSET  # As in Apache Kafka: there is no such record that the client may read.
        epoch = its_log.epochs.epoch_of(offset) if offset >= 0 else None
        answer.offset = offset
        answer.leader_epoch = NO_EPOCH if epoch is None else epoch
    else:
        try:
            found = (
                its_log.offset_of_max_timestamp()
                if requested.timestamp == MAX_TIMESTAMP
                else its_log.offset_for_timestamp(requested.timestamp)
            )
        except (OSError, MalformedMessage) as error:
            return _refused(requested, its_log.error_of_lookup(error))
        if found is not None and found.offset < end_offset:
            answer.timestamp = found.timestamp
            answer.offset = found.offset
            answer.leader_epoch = found.leader_epoch
        elif is_behind:
            return _refused(requested, ErrorCode.OFFSET_NOT_AVAILABLE)
    return answer


API: Final = Api(
    ListOffsetsRequest,
    broker=handle,
    needs=each_in("topics", on_topic, AclOperation.DESCRIBE),
    lists=[in_parts("topics.partitions")],
    errors_before={5: {ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE}},
)
