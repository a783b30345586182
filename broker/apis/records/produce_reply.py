"""The reply to a Produce: when it is sent, and how it states the results of appends.

It is sent when the records are committed (acks=all), or synced if a topic asks for that.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.broker.apis.records.current_leaders import FIRST_PRODUCE_VERSION, add_to_produce
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.purgatory.purgatory import AppendedRecords, DelayedOperation, DelayedProduce
from moldau.broker.runtime.pending import FLUSH, Reply
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.replication.partition import ACKS_ALL, Partition
from moldau.storage.log.append import AppendResult

NONE: Final = ErrorCode.NONE
"""The enum's member as a global name, because its lookup costs as much as a call."""
TOPIC_ID_VERSION: Final = 13
"""The first version in which requests name topics by id."""


def reply_when_committed(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    responses: list[TopicProduceResponse],
    parked: list[AppendedRecords],
    has_failed: bool,
) -> Reply[ProduceResponse] | None:
    """Return the response, or a `Pending` until the records are committed or synced. Returns None if acks=0."""
    if has_failed:
        context.route.count_errors(
            each.error_code for topic in responses for each in topic.partition_responses if each.error_code
        )
    acks = request.acks
    for each in parked:
        if each.partition.awaits_flush:
            services.flusher.flush(each.partition.log)
    if acks == 0:
        if has_failed:
            context.connection.close("a produce with acks=0 failed; closing is the only way to say so")
        return None
    response = ProduceResponse(responses=responses)
    if not parked:
        if has_failed:
            _add_leaders(services, context, response)
        return response
    add_leaders = partial(_add_leaders, services, context, response)
    purgatory = services.purgatory
    if acks == ACKS_ALL:
        return DelayedProduce(purgatory, request.timeout_ms, response, parked, add_leaders, has_failed=has_failed).reply
    operation: DelayedOperation[ProduceResponse] = DelayedOperation(
        purgatory, "Produce", None, lambda is_last: None, FLUSH
    )

    def flushed() -> None:
        for each in parked:
            failure = each.partition.log.failure
            if failure is not None:
                _refuse(each.answer, str(failure))
        if has_failed:
            add_leaders()
        operation.complete(response)

    services.flusher.call_when_durable([each.partition.log for each in parked], flushed)
    return operation.reply


def _add_leaders(services: Services, context: RequestContext, response: ProduceResponse) -> None:
    """Add the current leaders to a response with errors, if the version of the request has that field."""
    if context.version >= FIRST_PRODUCE_VERSION:
        add_to_produce(services, context.listener.name, response)


def must_wait(partition: Partition, acks: int) -> bool:
    return partition.awaits_flush or (acks == ACKS_ALL and partition.log.end_offset > partition.high_watermark)


def _refuse(answer: PartitionProduceResponse, message: str) -> None:
    """Answer KAFKA_STORAGE_ERROR for a partition: the disk failed before the records were synced, so they may be
    lost."""
    answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.error_message = message


def partition_response(index: int, result: AppendResult) -> PartitionProduceResponse:
    if result.error is NONE:
        return PartitionProduceResponse(
            index=index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
    answer = PartitionProduceResponse(index=index, base_offset=-1)
    set_result(answer, result)
    return answer


def set_result(answer: PartitionProduceResponse, result: AppendResult) -> None:
    """Put the result of an append into the answer of its partition.

    DIVERGES: Apache Kafka leaves most error messages empty; here each says what is wrong, so that a producer can log
    it.
    """
    answer.error_code = result.error
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
        for each in result.record_errors
    ]
    answer.error_message = result.error_message
