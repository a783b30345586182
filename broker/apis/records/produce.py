"""Produce (API key 0, versions 3-13; KIP-98, KIP-110, KIP-467, KIP-516, KIP-890, KIP-951): appends and acknowledges.

Each partition's batch is appended before the next request of the connection is handled. The response is sent when every
partition has reached the acknowledgement that the client asked for (`acks`): with acks=all it waits in the purgatory
for the in-sync replicas. KIP-98: idempotent producers, and transactions. KIP-110: zstd. KIP-467: the errors of single
records. KIP-516: topic ids, in version 13. KIP-890: the first records of a transaction in a partition are appended
once the transaction coordinator knows of it (`broker/apis/records/unverified_batches.py`). KIP-951: current leaders,
from version 10 on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import ABORTABLE, Api
from moldau.broker.apis.large_batches import LargeBatch
from moldau.broker.apis.needs import (
    Answer,
    change_response,
    divided,
    on_transactional_id,
    refusals_of,
    topic_by_id,
    with_field,
)
from moldau.broker.apis.parts import RECORDS_SIZE, cut
from moldau.broker.apis.records.produce_hook import produce_hook
from moldau.broker.apis.records.produce_reply import TOPIC_ID_VERSION, answer_of, fill, finish, must_wait
from moldau.broker.apis.records.unverified_batches import (
    UnverifiedBatch,
    Verification,
    is_transactional,
    unverified_batch,
)
from moldau.broker.purgatory.purgatory import AppendedRecords
from moldau.broker.runtime.pending import VALIDATION, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_validation import RejectedBatch, ValidBatch
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation
from moldau.storage.log.append import AppendResult

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.replication.partition import Partition
    from moldau.storage.producers.verification import VerificationGuard

NONE: Final = ErrorCode.NONE
"""Looked up once: an enum's member costs as much as a call."""


def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Pending[ProduceResponse] | None:
    """All batches are appended before this returns, except those that an executor thread examines because of their
    size: the connection is not read meanwhile. The reply waits for followers under acks=all, and for a sync where
    flush.messages asks for one.
    """
    acks = request.acks
    refusal = NONE if -1 <= acks <= 1 else ErrorCode.INVALID_REQUIRED_ACKS
    now_ms = services.environment.wall_ms()
    by_id = context.version >= TOPIC_ID_VERSION
    parked: list[AppendedRecords] = []
    large: list[LargeBatch] = []
    unverified: list[UnverifiedBatch] = []
    responses = []
    has_failed = False
    for topic in request.topic_data:
        known = services.replicas.by_id.get(topic.topic_id) if by_id else services.replicas.by_name.get(topic.name)
        answers = []
        for data in topic.partition_data:
            partition = known.get(data.index) if known is not None else None
            if partition is None:
                error = services.replicas.error_of(topic.topic_id if by_id else topic.name, data.index)
                answer = PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
            elif refusal is not NONE or partition.is_internal:
                error = refusal or ErrorCode.INVALID_TOPIC_EXCEPTION
                answer = PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
            else:
                # DIVERGES: of a partition named twice Apache Kafka appends and answers the last alone; here it is each.
                records = data.records
                if records is not None and is_transactional(records):
                    batch = unverified_batch(request, partition, records, now_ms, context.version)
                    if batch is not None:
                        unverified.append(batch)
                        answers.append(batch.answer)
                        continue
                result = _append(partition, records, acks, now_ms, context.version)
                answer = answer_of(data.index, result)
                if result.is_postponed:
                    copy = bytearray(data.records or b"")
                    append = partial(_append_examined, services, partition, len(copy), acks, answer, parked, None)
                    large.append(LargeBatch(partition, copy, now_ms, context.version, append))
                elif result.error is NONE and must_wait(partition, acks):
                    parked.append(AppendedRecords(partition, partition.log.end_offset, answer))
                if partition.awaits_write_back:
                    services.flusher.write_back(partition.log)
            has_failed = has_failed or answer.error_code != NONE
            answers.append(answer)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if large or unverified:
        return _postpone(services, context, request, responses, parked, large, unverified)
    return finish(services, context, request, responses, parked, has_failed)


def _postpone(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    responses: list[TopicProduceResponse],
    parked: list[AppendedRecords],
    large: list[LargeBatch],
    unverified: list[UnverifiedBatch],
) -> ProduceResponse | Pending[ProduceResponse] | None:
    """Continue once the transaction coordinator has answered and the large batches are examined: by then all batches
    are appended or refused. The copies of the batches count as request memory until then. Where the coordinator answers
    at once and no batch is large, nothing is postponed.
    """
    verification = Verification(services.transaction_verifier, request, context.version, unverified)

    def append_verified() -> None:
        for each in verification.accepted():
            _append_verified(services, context, request, each, parked, large)

    def finished() -> ProduceResponse | Pending[ProduceResponse] | None:
        has_failed = any(each.error_code for topic in responses for each in topic.partition_responses)
        return finish(services, context, request, responses, parked, has_failed)

    copied_size = sum(len(each.records) for each in unverified) + sum(len(each.batch) for each in large)
    must_append = True
    if verification.is_answered and not large:
        append_verified()
        if not large:
            return finished()
        must_append = False
    reply: Pending[ProduceResponse] = Pending(waits_for=VALIDATION)

    async def work() -> None:
        services.request_memory.keep(copied_size)
        try:
            if must_append:
                await verification.until_answered()
                append_verified()
            await services.large_batches.examine(large)
        finally:
            services.request_memory.give_back(copied_size)
        answer = finished()
        if isinstance(answer, Pending):
            reply.on_abandon = answer.abandon
            answer.listen(reply.complete)
        elif answer is not None:
            reply.complete(answer)

    context.connection.hold()
    services.spawn(context.connection.hold_during(work()))
    return None if request.acks == 0 else reply


def _append_verified(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    batch: UnverifiedBatch,
    parked: list[AppendedRecords],
    large: list[LargeBatch],
) -> None:
    """Append a batch whose partition is part of the transaction, unless the partition was removed meanwhile."""
    partition, answer = batch.partition, batch.answer
    if partition not in services.replicas:
        error = services.replicas.error_of(partition.topic, partition.index)
        fill(answer, AppendResult(error, -1, -1, -1, -1))
        return
    now_ms, acks = services.environment.wall_ms(), request.acks
    result = partition.append(batch.records, acks, now_ms, context.version, batch.guard)
    fill(answer, result)
    if result.is_postponed:
        append = partial(_append_examined, services, partition, len(batch.records), acks, answer, parked, batch.guard)
        large.append(LargeBatch(partition, batch.records, now_ms, context.version, append))
    elif result.error is NONE and must_wait(partition, acks):
        parked.append(AppendedRecords(partition, partition.log.end_offset, answer))
    if partition.awaits_write_back:
        services.flusher.write_back(partition.log)


def _append(partition: Partition, records: BytesLike | None, acks: int, now_ms: int, version: int) -> AppendResult:
    if records is None:
        # DIVERGES: Apache Kafka fails on null and never answers.
        return AppendResult(ErrorCode.INVALID_RECORD, -1, -1, -1, -1)
    return partition.append(records, acks, now_ms, version)


def _append_examined(
    services: Services,
    partition: Partition,
    size: int,
    acks: int,
    answer: PartitionProduceResponse,
    parked: list[AppendedRecords],
    guard: VerificationGuard | None,
    examined: ValidBatch | RejectedBatch,
) -> None:
    """Append a batch that an executor thread has examined, unless the partition was removed meanwhile."""
    if partition not in services.replicas:
        error = services.replicas.error_of(partition.topic, partition.index)
        fill(answer, AppendResult(error, -1, -1, -1, -1))
        return
    fill(answer, partition.append_examined(examined, size, acks, services.environment.wall_ms(), guard))
    if partition.awaits_write_back:
        services.flusher.write_back(partition.log)
    if answer.error_code == NONE and must_wait(partition, acks):
        parked.append(AppendedRecords(partition, partition.log.end_offset, answer))


def allowed(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """WRITE on each topic, and on the transactional id where any batch belongs to a transaction: every batch of a
    partition is examined (CVE-2018-17196). For an unknown topic id the answer is the usual error, because it reveals no
    topic.
    """
    assert isinstance(request, ProduceRequest)
    access = context.access
    if any(
        data.records and is_transactional(data.records) for each in request.topic_data for data in each.partition_data
    ):
        id_ = request.transactional_id
        if id_ is None or not on_transactional_id(AclOperation.WRITE, id_).is_met(access):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            refused_all: ProduceResponse = refused(request, context.version, error)
            return _not_produced(context, request, refused_all.responses)
    allowed, denied = divided(services, context, request.topic_data, topic_by_id(AclOperation.WRITE, TOPIC_ID_VERSION))
    if not denied:
        return answer(context, request)
    refusals = refusals_of(context, request, "topic_data", "responses", denied)
    if not allowed:
        return _not_produced(context, request, refusals)
    produced = answer(context, with_field(request, "topic_data", allowed))
    if produced is None:
        return _not_produced(context, request, refusals)

    def add(response: ProduceResponse) -> ProduceResponse:
        response.responses.extend(refusals)
        return response

    context.route.count_errors(data.error_code for each in refusals for data in each.partition_responses)
    return change_response(produced, add)


def _not_produced(
    context: RequestContext, request: ProduceRequest, refusals: list[TopicProduceResponse]
) -> ProduceResponse | None:
    context.route.count_errors(data.error_code for each in refusals for data in each.partition_responses)
    if request.acks == 0:
        context.connection.close("a produce with acks=0 is not allowed; closing is the only way to say so")
        return None
    return ProduceResponse(responses=refusals)


API: Final = Api(
    ProduceRequest,
    broker=handle,
    needs=allowed,
    lists=[cut("topic_data.partition_data", "responses.partition_responses", size=RECORDS_SIZE)],
    hook=produce_hook,
    errors_before={
        11: ABORTABLE,
        12: {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS},
    },
)
