"""ShareFetch (API key 78, versions 1-2; KIP-932, KIP-1206, KIP-1222): acquires records for a member of a share group.

2: the record limit may be strict (KIP-1206), and a request that renews locks fetches nothing (KIP-1222). Records are
found like those of a Fetch: in the local log or in remote storage, up to the offset that the group's isolation level
allows. Then the share partitions decide which of them the member acquires. The response has the record batches that
contain these.

    session ──▶ acknowledgements ─────────────────────────────────────────────┐
            └─▶ plan ──▶ enough bytes? ──▶ read ──▶ acquire ──▶ cut batches ──┴──▶ response
                  ▲           └ no: wait for commits, released records, a loaded share partition
                  └────────────┘
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from moldau.broker.apis.api import Api
from moldau.broker.apis.forwarding import close_on_failure, guarded
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import handler_asks
from moldau.broker.apis.parts import Answering
from moldau.broker.apis.records.current_leaders import Leaders
from moldau.broker.apis.records.fetch import (
    COLD_LOOKUPS_MAX,
    SIZE_SIZE,
    fetch_size_max,
    plan_again_when_read,
    warm_page_cache,
)
from moldau.broker.apis.services import Services
from moldau.broker.apis.share.share_acknowledge import (
    ACKNOWLEDGED,
    LEADER_MOVED_ERRORS,
    RENEW_VERSION,
    Outcomes,
    acknowledge,
    partitions_in,
    refusal_of,
    release_session,
    release_sessions_of,
)
from moldau.broker.network.route import RequestContext
from moldau.broker.purgatory.purgatory import HIGH_WATERMARK, LAST_STABLE_OFFSET, DelayedOperation
from moldau.broker.runtime.pending import DATA, Pending, Reply
from moldau.broker.share_partitions.runner import SharePartitionRunner
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.compiler import encoder_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest
from moldau.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from moldau.protocol.primitives import BytesLike, Chunk, MalformedMessage
from moldau.replication.fetch_plan import READ_COMMITTED, READ_UNCOMMITTED, PlannedRead
from moldau.replication.share.acquisition import AcquireParameters, bytes_with_acquired, fetched_batches
from moldau.replication.share.sessions import (
    FINAL_EPOCH,
    SESSION_PARTITIONS_MAX,
    SessionKey,
    SessionPartition,
    ShareFetchContext,
    ShareSessionParameters,
)
from moldau.replication.source import PageCacheMiss, PendingRemoteRead
from moldau.security.access import AclOperation, ResourceKind
from moldau.storage.files.file_slice import FileSlice

log = logging.getLogger("moldau.share")

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""The acquire modes: whole batches, or a strict limit on the number of records."""
CONSUMER_VERSION: Final = 10
"""The version of Fetch for which reads are planned. In this version, consumers read from the leader."""
PLANNED_MAX: Final = 128
"""The most share partitions that one request reads. Each request begins with another partition of its session."""
NO_LEADER: Final = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
"""The leader in a response that names none.

DIVERGES: Apache Kafka leaves zeros, here and in ShareAcknowledge. franz-go follows them beside any error, such as that
of a late acknowledgement: its member fetches from a broker 0 from then on, which may not exist.
"""
Fetched: TypeAlias = dict[SessionPartition, PartitionData]


def handle(services: Services, context: RequestContext, request: ShareFetchRequest) -> object:
    group_id, member_id = request.group_id, request.member_id
    error = refusal_of(services, context, group_id, member_id)
    if error is not ErrorCode.NONE:
        return refused(error)
    is_renewal = context.version >= RENEW_VERSION and request.is_renew_ack
    if is_renewal and any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)):
        return refused(ErrorCode.INVALID_REQUEST)
    if context.version >= RENEW_VERSION and request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        return refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert group_id is not None and member_id is not None
    wish = session_parameters(request, SessionKey(group_id, member_id), context.connection)
    found = services.share_sessions.open(wish)
    if found.error is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        return refused_after_wait(services, request, found.error)
    if found.error is not ErrorCode.NONE:
        return refused(found.error)
    context.connection.on_lost = partial(release_sessions_of, services, context.connection)
    fetch = ShareFetch(services, context, request, wish, found, is_renewal=is_renewal)
    return services.long_requests.answer(context, fetch.answering())


def refused(error: ErrorCode, throttle_ms: int = 0) -> ShareFetchResponse:
    return ShareFetchResponse(throttle_time_ms=throttle_ms, error_code=error, acquisition_lock_timeout_ms=0)


def refused_after_wait(services: Services, request: ShareFetchRequest, error: ErrorCode) -> Pending[ShareFetchResponse]:
    """Refuse a request after its wait time, so that its client does not repeat it at once."""
    operation: DelayedOperation[ShareFetchResponse] = DelayedOperation(
        services.purgatory, "ShareFetch", request.max_wait_ms, lambda is_last: refused(error) if is_last else None, DATA
    )
    return operation.reply


def session_parameters(request: ShareFetchRequest, key: SessionKey, connection: object) -> ShareSessionParameters:
    partitions = [*partitions_in(request)]
    return ShareSessionParameters(
        key,
        request.share_session_epoch,
        tuple(partition for partition, _ in partitions),
        tuple(
            SessionPartition(each.topic_id, index)
            for each in request.forgotten_topics_data
            for index in each.partitions
        ),
        any(each.acknowledgement_batches for _, each in partitions),
        connection,
    )


class ShareFetch:
    """One ShareFetch request, until it is answered. It is the `FetchLimits` by which its reads are planned."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: ShareFetchRequest,
        wish: ShareSessionParameters,
        found: ShareFetchContext,
        *,
        is_renewal: bool,
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._wish = wish
        self._found = found
        self._session = services.share_sessions.find(wish.key)
        self._is_renewal = is_renewal
        self._settings = services.share_partitions.settings_of(wish.key.group_id)
        self._quota = services.quotas.fetch
        self._shared: dict[SessionPartition, SharePartitionRunner] = {}
        self._fetched: Fetched = {}
        self._outcomes: Outcomes | None = None
        self._is_fetched = False
        self._throttle_ms = 0
        self._lookups_left = COLD_LOOKUPS_MAX
        self._remote_deadline_ms: int | None = None
        self._reply: Pending[ShareFetchResponse] = Pending(self._abandon, DATA)
        self._operation: DelayedOperation[Fetched] | None = None

    # The room of a plan

    @property
    def size_max(self) -> int:
        size_max, quota = self._services.fetch_size_max, self._quota
        return size_max if quota is None else fetch_size_max(quota, self._context, size_max)

    @property
    def memory_size_max(self) -> int:
        return self._services.reply_memory.room()

    @property
    def may_wait_for_remote(self) -> bool:
        deadline_ms = self._remote_deadline_ms
        return deadline_ms is None or self._services.environment.monotonic_ms() < deadline_ms

    def can_send_from_file(self, place: FileSlice) -> bool:
        """Return False: all records are copied, because the headers of their batches are read."""
        return False

    # The two halves of the request

    @property
    def _has_session(self) -> bool:
        """Whether the share session of the request still exists. It may end, or be replaced, while the request waits.

        DIVERGES: Apache Kafka acquires records for a session that has ended, and they wait for the end of their locks.
        """
        return self._services.share_sessions.find(self._wish.key) is self._session

    def answering(self) -> Answering:
        """Handle the request, and return the reply. Yields after each partition, so that other tasks run."""
        try:
            yield from self._begin()
        except GeneratorExit:
            self._abandon()
            raise
        return self._reply

    def _begin(self) -> Iterator[None]:
        request, wish = self._request, self._wish
        if wish.has_acknowledgements:
            asked, is_renewal = partitions_in(request), request.is_renew_ack
            yield from acknowledge(
                self._services, self._context, wish.key, asked, self._acknowledged, is_renewal=is_renewal
            )
        else:
            self._outcomes = {}
        if self._is_renewal or wish.epoch == FINAL_EPOCH:
            self._ended(self._fetched)
            return
        yield from self._find_partitions()
        if not self._shared or request.max_records <= 0 or request.max_bytes <= 0:
            self._ended(self._fetched)
        else:
            fetched = self._attempt(request.max_wait_ms <= 0) or self._wait()
            if isinstance(fetched, Pending):
                fetched.listen(self._ended)
            else:
                self._ended(fetched)

    def _acknowledged(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        if self._is_fetched:
            self._respond()

    def _ended(self, fetched: Fetched) -> None:
        self._fetched, self._is_fetched = fetched, True
        if self._outcomes is not None:
            self._respond()

    def _abandon(self) -> None:
        if self._operation is not None:
            self._operation.end()

    # Fetching

    def _find_partitions(self) -> Iterator[None]:
        """Find the share partitions of the session that the member may read. The other partitions get an error."""
        services, access, group_id = self._services, self._context.access, self._wish.key.group_id
        topics = services.cluster.image.topics.by_id
        for partition in self._found.partitions:
            topic = topics.get(partition.topic_id)
            if topic is None:
                # DIVERGES: Apache Kafka 4.3.1 fails the whole request with UNKNOWN_SERVER_ERROR.
                self._fail(partition, ErrorCode.UNKNOWN_TOPIC_ID)
            elif not access.allows(AclOperation.READ, ResourceKind.TOPIC, topic.name):
                self._fail(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif partition.partition not in topic.partitions:
                self._fail(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                shared = services.share_partitions.get(ShareKey(group_id, *partition))
                if isinstance(shared, ErrorCode):
                    self._fail(partition, shared)
                else:
                    self._shared[partition] = shared
            yield

    def _fail(self, partition: SessionPartition, error: ErrorCode) -> None:
        self._fetched[partition] = result_without_records(partition, error)

    def _attempt(self, is_last: bool) -> Reply[Fetched] | None:
        """Fetch and acquire; None if fewer bytes are available than the client asks for, and `is_last` is False."""
        if not self._has_session:
            return self._fetched
        for partition, shared in [*self._shared.items()]:
            if shared.error is not None:
                del self._shared[partition]
                self._fail(partition, shared.error)
        able = {
            partition: shared
            for partition, shared in self._shared.items()
            if shared.is_active and not shared.is_read and shared.machine.can_acquire
        }
        unread = (key for key, one in able.items() if one.machine.next_fetch_offset() != one.partition.high_watermark)
        ready = {each: able[each] for each in islice(unread, PLANNED_MAX)}
        if not ready:
            if not is_last and self._shared:
                return None
            return self._fetched | results_without_records(able)
        reads = self._plan(ready)
        if isinstance(reads, PageCacheMiss):
            return self._warm(reads, is_last)
        if isinstance(reads, PendingRemoteRead):
            return self._await_remote(reads, is_last)
        size = sum(read.size for read in reads)
        min_bytes = min(self._request.min_bytes, self.size_max)
        if not is_last and size < min_bytes and not any(read.is_urgent for read in reads):
            return None
        self._throttle_ms = self._throttled_ms(0)
        if self._throttle_ms:
            return self._fetched
        self._fetched |= results_without_records(able)
        return self._read(ready, reads)

    def _throttled_ms(self, size: int) -> int:
        """Count the bytes of the response in the client's rate. Returns the throttle time in ms.

        DIVERGES: a client above its quota acquires nothing, and one that exceeds it with this response gets its records
        before it is muted. In Apache Kafka it acquires them, gets none, and they are locked until their locks expire.
        """
        if self._quota is None:
            return 0
        now_ms = self._services.environment.monotonic_ms()
        return self._quota.record(self._context.principal.name, self._context.client_id or "", size, now_ms)

    def _plan(
        self, ready: dict[SessionPartition, SharePartitionRunner]
    ) -> list[PlannedRead] | PageCacheMiss | PendingRemoteRead:
        """Plan the reads like those of a consumer. Each share partition gets an equal part of the bytes that the client
        allows. No more is read than the wanted records take, or than `min_bytes` if that is more. This is usually far
        less than the client allows."""
        size_max = min(self._request.max_bytes, self.size_max)
        records, size_min = self._request.max_records, min(self._request.min_bytes, size_max)
        isolation = READ_COMMITTED if self._settings.reads_committed else READ_UNCOMMITTED
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size_max, isolation_level=isolation, topics=[])
        wanted = []
        for place, (partition, shared) in enumerate(ready.items()):
            share = size_max // len(ready) + size_max % len(ready) * (place == 0)
            size = shared.read_size(records)
            wish = FetchPartition(
                partition=partition.partition,
                fetch_offset=shared.machine.next_fetch_offset(),
                partition_max_bytes=share if size is None else min(share, max(size, size_min)),
            )
            wanted.append(((partition.topic_id, partition.partition), wish))
        waits = self._lookups_left == 0
        return self._services.fetch_planner.plan(request, CONSUMER_VERSION, wanted, None, {}, self, waits)

    def _wait(self) -> Pending[Fetched]:
        attempt = guarded(self._context.connection, self._attempt)
        operation: DelayedOperation[Fetched] = DelayedOperation(
            self._services.purgatory, "ShareFetch", self._request.max_wait_ms, attempt, DATA
        )
        self._operation = operation
        awaited = LAST_STABLE_OFFSET if self._settings.reads_committed else HIGH_WATERMARK
        operation.watch([shared.partition for shared in self._shared.values()], awaited)
        for shared in self._shared.values():
            shared.add_waiting_fetch(operation)
        return operation.reply

    def _warm(self, cold: PageCacheMiss, is_last: bool) -> Pending[Fetched]:
        reply: Pending[Fetched] = Pending()
        self._lookups_left -= 1

        def plan_again(has_failed: bool) -> None:
            if has_failed:
                self._lookups_left = 0
            reply.follow(self._attempt(is_last) or self._wait())

        work = warm_page_cache(self._services, cold, plan_again)
        self._services.spawn(close_on_failure(self._context.connection, work))
        return reply

    def _await_remote(self, remote: PendingRemoteRead, is_last: bool) -> Pending[Fetched]:
        """Plan the reads again when the read of remote storage ends, or when remote.fetch.max.wait.ms is over."""
        reply: Pending[Fetched] = Pending()
        now_ms = self._services.environment.monotonic_ms()
        if self._remote_deadline_ms is None:
            self._remote_deadline_ms = now_ms + self._services.settings.config.integer("remote.fetch.max.wait.ms")

        def plan_again() -> None:
            reply.follow(self._attempt(is_last or not self.may_wait_for_remote) or self._wait())

        guard = guarded(self._context.connection, plan_again)
        plan_again_when_read(remote, self._remote_deadline_ms - now_ms, guard)
        return reply

    # Reading and acquiring

    def _read(
        self, ready: dict[SessionPartition, SharePartitionRunner], reads: Sequence[PlannedRead]
    ) -> Reply[Fetched]:
        found: list[tuple[PlannedRead, BytesLike | None]] = []
        try:
            for read in reads:
                place = read.place
                found.append((read, None if place is None else place.file.pread_cached(place.size, place.position)))
        except OSError:
            return self._read_on_executor(ready, reads)
        if any(read.place is not None and data is None for read, data in found):
            return self._read_on_executor(ready, reads)
        return self._acquire(ready, [(read, data or b"") for read, data in found])

    def _read_on_executor(
        self, ready: dict[SessionPartition, SharePartitionRunner], reads: Sequence[PlannedRead]
    ) -> Pending[Fetched]:
        """Read the records in an executor thread. Meanwhile no other fetch reads the same share partitions."""
        reply: Pending[Fetched] = Pending()
        for shared in ready.values():
            shared.is_read = True

        async def read_all() -> None:
            found: list[tuple[PlannedRead, BytesLike]] = []
            try:
                for read in reads:
                    data: BytesLike = b""
                    if read.place is not None:
                        try:
                            data = await self._services.environment.offload(read.place.read)
                        except OSError as error:
                            assert read.partition is not None
                            log.error("%s-%d cannot be read: %s", read.partition.topic, read.partition.index, error)
                            read.partition.log.fail_unless_transient(error)
                            read.data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                    found.append((read, data))
            finally:
                for shared in ready.values():
                    shared.is_read = False
            reply.complete(self._acquire(ready, found))
            for shared in ready.values():
                shared.check_waiting_fetches_soon()

        self._services.spawn(close_on_failure(self._context.connection, read_all()))
        return reply

    def _acquire(
        self, ready: dict[SessionPartition, SharePartitionRunner], found: Sequence[tuple[PlannedRead, BytesLike]]
    ) -> Fetched:
        """Acquire the records that were read, within the limits of the request."""
        if not self._has_session:
            return self._fetched
        left = self._request.max_records
        is_strict = self._context.version >= RENEW_VERSION and self._request.share_acquire_mode == RECORD_LIMIT
        for read, data in found:
            topic_id, index = read.key
            assert isinstance(topic_id, bytes)
            partition = SessionPartition(topic_id, index)
            shared = ready[partition]
            error = shared.error if shared.error is not None else ErrorCode(read.data.error_code)
            answer = self._fetched[partition] = result_without_records(partition, error)
            if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # The records were deleted, by retention or on request: what is left is fetched next.
                shared.machine.on_log_start_moved(shared.partition.log.log_start_offset)
                answer.error_code = ErrorCode.NONE
            if error is not ErrorCode.NONE or not data:
                continue
            try:
                batches = list(fetched_batches(data))
            except MalformedMessage as damage:
                shared.partition.log.mark_damaged(f"{damage}, in records that a share group fetches")
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if batches:
                records = batches[-1].batch.last_offset - batches[0].batch.first_offset + 1
                shared.note_read(batches[-1].end_position, records)
            else:
                shared.note_read(0, 0)
            aborted = [(each.first_offset, each.producer_id) for each in read.data.aborted_transactions or ()]
            wish = AcquireParameters(
                self._wish.key.member_id, left, self._request.batch_size, is_strict, read.fetch_offset
            )
            acquired, count = shared.acquire_records(wish, [each.batch for each in batches], aborted)
            if acquired:
                left -= count
                answer.records = bytes_with_acquired(data, batches, acquired)
                answer.acquired_records = [
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count)
                    for first, last, delivery_count in acquired
                ]
        return self._fetched

    # The response

    def _respond(self) -> None:
        assert self._outcomes is not None
        session, answers = self._found.session, {}
        if not self._throttle_ms:
            for partition, answer in self._fetched.items():
                if session is None or session.includes_in_response(
                    partition, has_records=bool(answer.records), has_error=bool(answer.error_code)
                ):
                    answers[partition] = answer
        for partition, (error, message) in self._outcomes.items():
            answer = answers.setdefault(partition, result_without_records(partition, ErrorCode.NONE))
            answer.acknowledge_error_code, answer.acknowledge_error_message = error, message
        response = ShareFetchResponse(
            throttle_time_ms=self._throttle_ms, acquisition_lock_timeout_ms=self._settings.limits.lock_duration_ms
        )
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        leaders = Leaders(self._services, self._context.listener.name)
        for (topic_id, index), answer in answers.items():
            if answer.error_code in LEADER_MOVED_ERRORS:
                answer.current_leader = leaders.of((topic_id, index), LeaderIdAndEpoch)
            topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id=topic_id)).partitions.append(answer)
        response.responses = list(topics.values())
        response.node_endpoints = leaders.endpoints(NodeEndpoint)
        if self._wish.epoch == FINAL_EPOCH:
            release_session(self._services, self._wish.key)
        if self._quota is not None and not self._throttle_ms:
            response.throttle_time_ms = self._throttled_ms(response_size(response, self._context.version))
        self._reply.complete(response)


def response_size(response: ShareFetchResponse, version: int) -> int:
    """The size in bytes of a response without its header. The records are not copied."""
    pieces: list[Chunk] = []
    encoder_of(ShareFetchResponse, version)(response, pieces)
    return SIZE_SIZE + sum(map(len, pieces))


def results_without_records(partitions: Iterable[SessionPartition]) -> Fetched:
    """Make a result without records and without an error for each partition."""
    return {each: result_without_records(each, ErrorCode.NONE) for each in partitions}


def result_without_records(partition: SessionPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition,
        error_code=error,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=NO_LEADER,
        records=b"",
    )


API: Final = Api(
    ShareFetchRequest,
    broker=handle,
    needs=handler_asks,
    lists=[
        at_most(SESSION_PARTITIONS_MAX, "topics", "topics.partitions"),
        at_most(SESSION_PARTITIONS_MAX, "forgotten_topics_data", "forgotten_topics_data.partitions"),
        ACKNOWLEDGED,
    ],
)
