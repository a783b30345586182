"""ListOffsets (API key 2, versions 1-11; KIP-79, KIP-207, KIP-320, KIP-405, KIP-734, KIP-1005): finds an offset.

The offset of a timestamp (KIP-79) or of a special position: earliest, latest, that of the largest timestamp (KIP-734),
those of tiered storage (KIP-405, KIP-1005; no record is tiered here). A leader that does not know its high watermark
yet answers no latest offset (KIP-207). Requests and responses carry leader epochs (KIP-320).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.primitives import MalformedMessage
from protocol.schema import VERSION_MAX
from replication.follower_fetch import LocalReplicas
from replication.partition import Partition

if TYPE_CHECKING:
    from broker.network.route import RequestContext

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
"""The version that brought each special position; clients that speak less cannot mean it."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
CONSUMER_REPLICA_ID: Final = -1
NO_EPOCH: Final = -1
NOT_AVAILABLE_VERSION: Final = 5
"""From this version on clients know OFFSET_NOT_AVAILABLE."""


class ListOffsetsServices(Protocol):
    """What ListOffsets uses of the broker."""

    @property
    def replicas(self) -> LocalReplicas: ...


def handle(services: ListOffsetsServices, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = Counter((topic.name, wish.partition_index) for topic in request.topics for wish in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wish in topic.partitions:
            times = asked.pop((topic.name, wish.partition_index), 0)
            if times == 0:
                continue  # the request names the partition several times, and it was refused already
            partition = services.replicas.find((topic.name, wish.partition_index))
            if times > 1:
                answers.append(_refused(wish, ErrorCode.INVALID_REQUEST))
            elif partition is None:
                answers.append(_refused(wish, services.replicas.why_not(topic.name, wish.partition_index)))
            else:
                answers.append(_answer(request, context.version, wish, partition))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _refused(wish: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wish.partition_index, error_code=error)


def _not_available(version: int) -> ErrorCode:
    """A new leader does not know yet how much of its log is committed: an offset told now could go back later."""
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_VERSION else ErrorCode.LEADER_NOT_AVAILABLE


def _answer(
    request: ListOffsetsRequest, version: int, wish: ListOffsetsPartition, partition: Partition
) -> ListOffsetsPartitionResponse:
    refusal = partition.check_leader_epoch(wish.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return _refused(wish, refusal)
    leadership = partition.leadership
    if leadership is None:
        return _refused(wish, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if wish.timestamp < 0 and version < FIRST_VERSIONS.get(wish.timestamp, VERSION_MAX):
        return _refused(wish, ErrorCode.UNSUPPORTED_VERSION)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(wish, ErrorCode.UNKNOWN_SERVER_ERROR)
    log = partition.log
    end_offset = log.end_offset
    if request.replica_id == CONSUMER_REPLICA_ID:
        is_committed = request.isolation_level == READ_COMMITTED
        end_offset = partition.last_stable_offset if is_committed else partition.high_watermark
    answer = ListOffsetsPartitionResponse(partition_index=wish.partition_index)
    is_consumer = request.replica_id == CONSUMER_REPLICA_ID
    # The high watermark counts also where the consumer reads to the last stable offset: a transaction may stay open.
    is_behind = is_consumer and partition.high_watermark < leadership.epoch_start_offset
    if wish.timestamp == LATEST and is_behind:
        return _refused(wish, _not_available(version))
    if wish.timestamp == LATEST:
        answer.offset = end_offset
        answer.leader_epoch = partition.leader_epoch
    elif wish.timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        epoch = log.epochs.epoch_of(log.log_start_offset)
        answer.leader_epoch = NO_EPOCH if epoch is None else epoch
    elif wish.timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        try:
            found = (
                log.offset_of_max_timestamp()
                if wish.timestamp == MAX_TIMESTAMP
                else log.offset_for_timestamp(wish.timestamp)
            )
        except OSError as error:
            log.fail_unless_passing(error)
            return _refused(wish, ErrorCode.KAFKA_STORAGE_ERROR)
        except MalformedMessage as malformed:
            log.damaged(str(malformed))
            return _refused(wish, ErrorCode.KAFKA_STORAGE_ERROR)
        if found is not None and found.offset < end_offset:
            answer.timestamp = found.timestamp
            answer.offset = found.offset
            answer.leader_epoch = found.leader_epoch
        elif is_behind:
            return _refused(wish, _not_available(version))
    return answer
