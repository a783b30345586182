"""Produce (API key 0, versions 3-13; KIP-98, KIP-110, KIP-467, KIP-516, KIP-890, KIP-951): appends and acknowledges.

3: idempotent producers, and transactions (KIP-98) · 5: log start offsets (KIP-107) · 7: zstd (KIP-110) · 8: the errors
of single records (KIP-467) · 10: current leaders (KIP-951) · 11: TRANSACTION_ABORTABLE (KIP-890) · 12: the first
records of a transaction in a partition add it to the transaction (KIP-890) · 13: topic ids (KIP-516).

Each partition's batch is appended before the next request of the connection is handled. The first records of a
transaction in a partition are appended once the transaction coordinator knows of the partition
(`unverified_batches.py`). The response is sent when every partition has reached the acknowledgement that the client
asked for (`acks`): with acks=all it waits in the purgatory for the in-sync replicas.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.broker.apis.api import ABORTABLE, Api
from moldau.broker.apis.large import LargeBatch
from moldau.broker.apis.needs import (
    Answer,
    change_response,
    on_transactional_id,
    refusals_of,
    split_by_need,
    topic_by_id,
    with_field,
)
from moldau.broker.apis.parts import RECORDS_SIZE, in_parts
from moldau.broker.apis.records.erasure import append_order
from moldau.broker.apis.records.produce_hook import produce_hook
from moldau.broker.apis.records.produce_reply import (
    TOPIC_ID_VERSION,
    must_wait,
    partition_response,
    reply_when_committed,
    set_result,
)
from moldau.broker.apis.records.unverified_batches import (
    UnverifiedBatch,
    Verification,
    is_transactional,
    unverified_batch,
)
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.purgatory.purgatory import AppendedRecords
from moldau.broker.runtime.pending import VALIDATION, Pending, Reply
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
    copy_records,
)
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_validation import RejectedBatch, ValidBatch
from moldau.protocol.refusals import refused
from moldau.replication.partition import Partition
from moldau.security.access import AclOperation
from moldau.storage.log.append import AppendResult
from moldau.storage.producers.verification import VerificationGuard

NONE: Final = ErrorCode.NONE
"""The enum's member as a global name, because its lookup costs as much as a call."""


def handle(services: Services, context: RequestContext, request: ProduceRequest) -> Reply[ProduceResponse] | None:
    """Append the batches of a request. A batch is appended later if an executor thread must validate it because of its
    size, or if the transaction coordinator must verify it. Until then the connection is not read. The reply waits for
    followers if acks=all, and for a sync if flush.messages asks for one."""
    return Produce(services, context, request).answer()


class Produce:
    """One Produce request, until it is answered."""

    __slots__ = ("_context", "_large", "_now_ms", "_parked", "_request", "_responses", "_services", "_unverified")

    def __init__(self, services: Services, context: RequestContext, request: ProduceRequest) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._now_ms = services.environment.wall_ms()
        self._responses: list[TopicProduceResponse] = []
        self._parked: list[AppendedRecords] = []
        """Appended records that wait for followers or for a sync."""
        self._large: list[LargeBatch] = []
        """Batches that an executor thread validates before they are appended."""
        self._unverified: list[UnverifiedBatch] = []
        """Batches that must be verified with the transaction coordinator before they are appended."""

    def answer(self) -> Reply[ProduceResponse] | None:
        services, request = self._services, self._request
        refusal = NONE if -1 <= request.acks <= 1 else ErrorCode.INVALID_REQUIRED_ACKS
        by_id = self._context.version >= TOPIC_ID_VERSION
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
                    # DIVERGES: of a partition named twice Apache Kafka appends and answers the last alone; here it is
                    # each.
                    answer = self._append(partition, data.records)
                has_failed = has_failed or answer.error_code != NONE
                answers.append(answer)
            if answers:  # As in Apache Kafka: a topic without partitions has no result.
                self._responses.append(
                    TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
                )
        if self._large or self._unverified:
            return self._postpone()
        return reply_when_committed(services, self._context, request, self._responses, self._parked, has_failed)

    def _append(self, partition: Partition, records: BytesLike | None) -> PartitionProduceResponse:
        """Append a batch, unless it must be verified or validated first. Returns its answer, which may be filled
        later."""
        if records is None:
            # DIVERGES: Apache Kafka fails on null and never answers.
            return partition_response(partition.index, AppendResult(ErrorCode.INVALID_RECORD, -1, -1, -1, -1))
        version = self._context.version
        if is_transactional(records):
            batch = unverified_batch(self._request, partition, records, self._now_ms, version)
            if batch is not None:
                self._unverified.append(batch)
                return batch.answer
        result = partition.append(records, self._request.acks, self._now_ms, version)
        if result.error is ErrorCode.INVALID_RECORD:
            acks, now_ms = self._request.acks, self._now_ms
            result = append_order(self._services, self._context, partition, records, acks, now_ms, result)
        answer = partition_response(partition.index, result)
        self._appended(partition, records, None, answer, result)
        return answer

    def _append_verified(self, batch: UnverifiedBatch) -> None:
        """Append a batch that the transaction coordinator has verified, unless the replica was removed meanwhile."""
        partition = batch.partition
        if self._is_gone(partition, batch.answer):
            return
        self._now_ms = self._services.environment.wall_ms()
        result = partition.append(batch.records, self._request.acks, self._now_ms, self._context.version, batch.guard)
        set_result(batch.answer, result)
        self._appended(partition, batch.records, batch.guard, batch.answer, result)

    def _appended(
        self,
        partition: Partition,
        records: BytesLike,
        guard: VerificationGuard | None,
        answer: PartitionProduceResponse,
        result: AppendResult,
    ) -> None:
        """Note what a batch still waits for after it was given to the log: validation, followers or a sync. A large
        batch is copied, because the buffer of its connection is used again. A verified batch is a copy already."""
        if result.is_postponed:
            copy = records if guard is not None and isinstance(records, bytearray) else bytearray(records)
            append = partial(self._append_examined, partition, len(copy), answer, guard)
            self._large.append(LargeBatch(partition, copy, self._now_ms, self._context.version, append))
        elif result.error is NONE and must_wait(partition, self._request.acks):
            self._parked.append(AppendedRecords(partition, partition.log.end_offset, answer))
        if partition.awaits_write_back:
            self._services.flusher.write_back(partition.log)

    def _append_examined(
        self,
        partition: Partition,
        size: int,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
        examined: ValidBatch | RejectedBatch,
    ) -> None:
        """Append a batch that an executor thread has validated, unless this broker's replica was removed meanwhile."""
        if self._is_gone(partition, answer):
            return
        services, acks = self._services, self._request.acks
        set_result(answer, partition.append_examined_batch(examined, size, acks, services.environment.wall_ms(), guard))
        if partition.awaits_write_back:
            services.flusher.write_back(partition.log)
        if answer.error_code == NONE and must_wait(partition, acks):
            self._parked.append(AppendedRecords(partition, partition.log.end_offset, answer))

    def _is_gone(self, partition: Partition, answer: PartitionProduceResponse) -> bool:
        """Whether this broker's replica was removed. If so, the error is put into the answer."""
        replicas = self._services.replicas
        if partition in replicas:
            return False
        set_result(answer, AppendResult(replicas.error_of(partition.topic, partition.index), -1, -1, -1, -1))
        return True

    def _postpone(self) -> Reply[ProduceResponse] | None:
        """Continue the request when the transaction coordinator has answered and the large batches are validated. Then
        all batches are appended or refused. Until then their copies count as request memory. If the coordinator has
        answered already and no batch is large, the request is finished at once."""
        services, context = self._services, self._context
        verification = Verification(services.transaction_verifier, self._request, context.version, self._unverified)
        copied_size = sum(len(each.records) for each in self._unverified) + sum(len(each.batch) for each in self._large)
        must_append = True
        if verification.is_answered and not self._large:
            self._append_accepted(verification)
            if not self._large:
                return self._finished()
            must_append = False
        reply: Pending[ProduceResponse] = Pending(waits_for=VALIDATION)

        async def work() -> None:
            services.request_memory.keep(copied_size)
            try:
                if must_append:
                    await verification.until_answered()
                    self._append_accepted(verification)
                await services.large_batches.examine(self._large)
            finally:
                services.request_memory.give_back(copied_size)
            answer = self._finished()
            if answer is not None:
                reply.follow(answer)

        context.connection.hold()
        services.spawn(context.connection.hold_during(work()))
        return None if self._request.acks == 0 else reply

    def _append_accepted(self, verification: Verification) -> None:
        for each in verification.accepted():
            self._append_verified(each)

    def _finished(self) -> Reply[ProduceResponse] | None:
        has_failed = any(each.error_code for topic in self._responses for each in topic.partition_responses)
        return reply_when_committed(
            self._services, self._context, self._request, self._responses, self._parked, has_failed
        )


def acl_rule(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The rule: WRITE on each topic, and on the transactional id if a batch belongs to a transaction. All batches of a
    partition are checked for that (CVE-2018-17196). An unknown topic id needs no permission: it gets the usual error,
    which reveals no topic."""
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
    allowed, denied = split_by_need(
        services, context, request.topic_data, topic_by_id(AclOperation.WRITE, TOPIC_ID_VERSION)
    )
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
    needs=acl_rule,
    lists=[
        in_parts("topic_data.partition_data", "responses.partition_responses", size=RECORDS_SIZE, copies=copy_records)
    ],
    hook=produce_hook,
    errors_before={11: ABORTABLE, 12: {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS}},
)
