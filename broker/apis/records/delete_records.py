"""DeleteRecords (API key 21, versions 0-2; KIP-107): moves a partition's log start offset forward.

2: tagged fields (KIP-482). The new log start offset is at most the high watermark. The leader deletes at once. The
response waits in the purgatory until the low watermark has reached the new offset: then all live replicas have deleted
the records, so no later leader has them. A follower gets the leader's log start offset in a fetch response, and sends
its own with its next fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import each_in, on_topic
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.network.route import RequestContext
from moldau.broker.purgatory.purgatory import HIGH_WATERMARK, LOW_WATERMARK, DelayedOperation
from moldau.broker.runtime.pending import REPLICAS, Pending, Reply
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.replication.partition import Partition
from moldau.security.access import AclOperation

UP_TO_HIGH_WATERMARK: Final = -1
"""The offset in a request that means the high watermark: delete all committed records."""
NO_LOW_WATERMARK: Final = -1


class DeletionUnderWay(NamedTuple):
    """A partition whose records before `offset` this broker has deleted, and its result in the response."""

    partition: Partition
    offset: int
    answer: DeleteRecordsPartitionResult


def handle(services: Services, context: RequestContext, request: DeleteRecordsRequest) -> Reply[DeleteRecordsResponse]:
    """Delete records. The response is returned at once, unless other replicas have to delete the records too."""
    waiting: list[DeletionUnderWay] = []
    response = DeleteRecordsResponse()
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for requested in topic.partitions:  # If a partition is named twice, its last element counts.
            wanted.setdefault(topic.name, {})[requested.partition_index] = requested
    for name, partitions in wanted.items():
        result = DeleteRecordsTopicResult(name=name)
        response.topics.append(result)
        for requested in partitions.values():
            answer = DeleteRecordsPartitionResult(
                partition_index=requested.partition_index, low_watermark=NO_LOW_WATERMARK
            )
            result.partitions.append(answer)
            found = _partition(services, name, requested.partition_index)
            deleted = _delete(found, requested.offset, answer) if isinstance(found, Partition) else found
            if isinstance(deleted, ErrorCode):
                _refuse(answer, deleted)
            elif not _settle(services, deleted):
                waiting.append(deleted)
    return _wait(services, request.timeout_ms, response, waiting) if waiting else response


def _partition(services: Services, topic: str, index: int) -> Partition | ErrorCode:
    """The partition, if its records may be deleted at this broker, otherwise the error."""
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    partition = services.replicas.get(topic, index)
    if partition is None:
        return services.replicas.error_of(topic, index)
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not partition.log.config.has_delete_policy and partition.log.config.is_compacted:
        return ErrorCode.POLICY_VIOLATION
    return partition


def _delete(partition: Partition, wanted: int, answer: DeleteRecordsPartitionResult) -> DeletionUnderWay | ErrorCode:
    """Delete a partition's records before the offset `wanted`, at this broker. Returns the deletion, or an error."""
    offset = partition.high_watermark if wanted == UP_TO_HIGH_WATERMARK else wanted
    if offset < 0:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    refusal = partition.delete_records_before(offset)
    return DeletionUnderWay(partition, offset, answer) if refusal is ErrorCode.NONE else refusal


def _wait(
    services: Services, timeout_ms: int, response: DeleteRecordsResponse, deleted: Sequence[DeletionUnderWay]
) -> Pending[DeleteRecordsResponse]:
    waiting = list(deleted)

    def attempt(is_last: bool) -> DeleteRecordsResponse | None:
        waiting[:] = [each for each in waiting if not _settle(services, each)]
        if waiting and not is_last:
            return None
        for each in waiting:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    operation = DelayedOperation(services.purgatory, "DeleteRecords", timeout_ms, attempt, REPLICAS)
    partitions = [each.partition for each in deleted]
    operation.watch(partitions, LOW_WATERMARK)
    operation.watch(partitions, HIGH_WATERMARK)  # finds followers that are not alive any more, and were not in sync
    return operation.reply


def _settle(services: Services, deleted: DeletionUnderWay) -> bool:
    """Put the low watermark, or an error, into the result of a deletion. Returns False if a live replica has not
    deleted the records yet."""
    partition, answer = deleted.partition, deleted.answer
    if partition not in services.replicas:
        _refuse(answer, services.replicas.error_of(partition.topic, partition.index))
        return True
    if not partition.is_leader:
        _refuse(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True
    answer.low_watermark = partition.low_watermark(services.cluster.is_alive)
    return answer.low_watermark >= deleted.offset


def _refuse(answer: DeleteRecordsPartitionResult, error: ErrorCode) -> None:
    answer.error_code = error
    answer.low_watermark = NO_LOW_WATERMARK


API: Final = Api(
    DeleteRecordsRequest,
    broker=handle,
    needs=each_in("topics", on_topic, AclOperation.DELETE),
    lists=[in_parts("topics.partitions")],
)
