"""Fetch: plan what to read from the indexes, wait for more where the client asks, then read the bytes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.network.reply import SLICE_SIZE_MIN
from broker.purgatory.delayed_fetch import DelayedFetch
from broker.requests.follower_fetch import NO_EPOCH, divergence, note_positions, refusal_of, replica_of
from broker.requests.leader_hints import FIRST_FETCH_VERSION, hint_fetch
from broker.requests.nearest_replica import FIRST_VERSION, nearest_replica
from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from protocol.schema import FetchedRecords
from replication.fetch_session import FetchContext, PartitionKey
from storage.files.file_slice import NotCached
from storage.log.damaged_log import damage_of
from storage.segment.batch_scan import damage_in

if TYPE_CHECKING:
    from broker.network.route import RequestContext
    from broker.node.node import Node as Broker
    from replication.partition import Partition
    from storage.checkpoints.leader_epochs import EpochEnd
    from storage.files.file_slice import FileSlice
    from storage.log.log import Log
    from storage.log.reading import LogRead

log = logging.getLogger("moldau.fetch")

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
COLD_LOOKUPS_MAX: Final = 16
"""So often a lookup begins anew because the page cache lacked something; the next one waits for the disk."""
SERVED_MAX: Final = 10_000
"""Partitions of which a connection remembers what it was served; past that it begins anew."""


class Answer:
    """What one partition will answer; its bytes are not read yet."""

    __slots__ = ("data", "key", "partition", "read", "read_offset")

    def __init__(
        self,
        key: PartitionKey,
        data: PartitionData,
        partition: Partition | None,
        read: LogRead | None,
        read_offset: int = -1,
    ) -> None:
        self.key = key
        self.data = data
        self.partition = partition
        self.read = read
        self.read_offset = read_offset
        """What was asked for."""

    @property
    def is_urgent(self) -> bool:
        """Errors, diverging logs and better replicas are told at once."""
        data = self.data
        return data.error_code != ErrorCode.NONE or data.diverging_epoch is not None or data.preferred_read_replica >= 0


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    now_ms = broker.environment.monotonic_ms()
    fetch, is_incremental = broker.fetch_sessions.open(request, context.version, now_ms)
    if fetch.error is not ErrorCode.NONE:
        return FetchResponse(error_code=fetch.error)

    return Fetching(broker, context, request, fetch, is_incremental).answer(now_ms)


def _refused(request: FetchRequest, error: ErrorCode) -> FetchResponse:
    """The whole request fails: before version 7 only its partitions can say so."""
    responses = [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_without_data(wish.partition, error) for wish in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchResponse(error_code=error, responses=responses)


class ColdLookup(Exception):
    """The page cache lacks a part of an index or a header that is needed to find what a log is asked for."""

    def __init__(self, asked: Log, place: FileSlice) -> None:
        super().__init__()
        self.log = asked
        self.place = place


class Fetching:
    """One request until its answer is there."""

    __slots__ = (
        "_agreeing",
        "_broker",
        "_context",
        "_fetch",
        "_is_incremental",
        "_lookups_left",
        "_news",
        "_replica",
        "_request",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        request: FetchRequest,
        fetch: FetchContext,
        is_incremental: bool,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._fetch = fetch
        self._replica = replica_of(request)
        self._is_incremental = is_incremental
        self._lookups_left = COLD_LOOKUPS_MAX
        self._news = fetch.session.news if fetch.session is not None else None
        self._agreeing: dict[PartitionKey, None] = {}
        """Of a follower: where its log agrees with ours, as was found in this turn of the loop."""

    def answer(self, now_ms: int) -> FetchResponse | Pending[FetchResponse]:
        if self._replica is not None:
            self._agreeing = note_positions(self._broker, self._replica, self._fetch.wanted, now_ms, self._news)
            if self._request.max_wait_ms > 0 and self._request.min_bytes > 0 and self._has_all():
                self._agreeing = {}
                return self._wait()
        return self._attempt(self._request.max_wait_ms <= 0) or self._wait()

    def _has_all(self) -> bool:
        """Whether a follower is at the end of all that it asks for, and waits: no plan need be made to see that."""
        if not self._awaits_news():
            return False
        replicas, agreeing = self._broker.replicas, self._agreeing
        for key, wish in self._fetch.wanted:
            partition = replicas.find(key) if key in agreeing else None
            if partition is None or wish.fetch_offset != partition.log.end_offset:
                return False
        return True

    def _attempt(self, is_last: bool) -> FetchResponse | Pending[FetchResponse] | None:
        """The answer; None where there is less than the client asks for, and time."""
        request = self._request
        if self._news is not None and self._fetch.session is not None:
            self._fetch.wanted = self._fetch.session.wanted()
        try:
            answers = _plan(
                self._broker,
                self._context,
                request,
                self._fetch,
                self._replica,
                self._agreeing,
                self._lookups_left == 0,
            )
        except ColdLookup as cold:
            return self._look_again(cold, is_last)
        finally:
            self._agreeing = {}
        size = sum(answer.read.size for answer in answers if answer.read is not None)
        has_enough = size >= request.min_bytes or any(answer.is_urgent for answer in answers)
        if is_last or has_enough or not (answers or self._awaits_news()):
            if self._replica is not None and not self._broker.throttles.leader.is_idle:
                self._count_throttled(answers)
            return _respond(self._broker, self._context, self._fetch, self._is_incremental, answers)
        return None

    def _count_throttled(self, answers: list[Answer]) -> None:
        quota, now_ms = self._broker.throttles.leader, self._broker.environment.monotonic_ms()
        for answer in answers:
            partition, read = answer.partition, answer.read
            if partition is not None and read is not None and quota.is_throttled(partition.topic, partition.index):
                quota.record(read.size, now_ms)

    def _awaits_news(self) -> bool:
        """Whether a follower's session has partitions, though nothing to tell of them."""
        session = self._fetch.session
        return session is not None and session.news is not None and bool(session.partitions)

    def _wait(self) -> Pending[FetchResponse]:
        broker, wait_ms, news = self._broker, self._request.max_wait_ms, self._news
        wakes, timeouts = broker.wakes, broker.timeouts
        if self._replica is None:
            return DelayedFetch(wakes, timeouts, wait_ms, self._awaited(), self._attempt).reply
        wait_ms = broker.parked_fetches.wait_ms(wait_ms)
        if news is not None:
            parked = DelayedFetch(wakes, timeouts, wait_ms, [], self._attempt, news=news)
        else:
            parked = DelayedFetch(wakes, timeouts, wait_ms, self._awaited(), self._attempt, is_replica=True)
        broker.parked_fetches.park(parked)
        return parked.reply

    def _awaited(self) -> list[Partition]:
        replicas = self._broker.replicas
        return [found for key, _ in self._fetch.wanted if (found := replicas.find(key)) is not None]

    def _look_again(self, cold: ColdLookup, is_last: bool) -> Pending[FetchResponse]:
        """Plan once more when what the page cache lacked is in it."""
        reply: Pending[FetchResponse] = Pending()
        self._lookups_left -= 1

        def look() -> None:
            answer = self._attempt(is_last) or self._wait()
            if isinstance(answer, Pending):
                reply.on_abandon = answer.abandon
                answer.listen(reply.complete)
            else:
                reply.complete(answer)

        async def warm() -> None:
            try:
                await self._broker.environment.offload(cold.place.warm)
            except OSError as error:
                log.error("a fetch could not be looked up: %s", error)
                cold.log.fail_unless_passing(error)
                self._lookups_left = 0
            self._broker.loop.call_soon(look)  # a log that failed is taken away first

        self._broker.spawn(warm())
        return reply


def _plan(
    broker: Broker,
    context: RequestContext,
    request: FetchRequest,
    fetch: FetchContext,
    replica: ReplicaState | None,
    agreeing: Mapping[PartitionKey, None],
    waits: bool,
) -> list[Answer]:
    """Where each partition's bytes lie. The first partition with data gives at least one batch, whatever the limits.

    Without `waits` it raises `ColdLookup` where an index or a header would have to be read from the disk.

    DIVERGES: Apache Kafka fails a partition on a negative limit; here it counts as 0.
    """
    left = min(request.max_bytes, broker.fetch_size_max)
    room = broker.reply_memory.room()
    found_data = False
    is_over = (
        replica is not None
        and not broker.throttles.leader.is_idle
        and broker.throttles.leader.is_exceeded(broker.environment.monotonic_ms())
    )
    prefers_near = broker.reads_near and replica is None and request.rack_id and context.version >= FIRST_VERSION
    answers = []
    for key, wish in fetch.wanted:
        partition = broker.replicas.find(key)
        if partition is None:
            answers.append(Answer(key, _unknown(broker, key), None, None))
            continue
        refusal = refusal_of(context.version, partition, wish, replica)
        if refusal is not ErrorCode.NONE:
            answers.append(Answer(key, _failed(_empty(partition, wish), refusal), partition, None))
            continue
        if prefers_near and partition.is_leader:
            nearest = nearest_replica(broker, partition, wish, request.rack_id)
            if nearest >= 0:
                data = _empty(partition, wish)
                data.preferred_read_replica = nearest
                answers.append(Answer(key, data, partition, None))
                continue
        end = _end_offset(request, partition, replica)
        found = divergence(partition.log, wish) if key not in agreeing else None
        if found is not None:
            answers.append(_diverging(key, wish, partition, found))
            continue
        if is_over and replica is not None and _is_held_back(broker, partition, replica):
            answers.append(Answer(key, _empty(partition, wish), partition, None))
            continue
        answer = _plan_partition(request, key, wish, partition, end, left, not found_data, waits)
        if _copied_size(context, answer) > room:
            answer = _plan_partition(request, key, wish, partition, end, min(left, room), not found_data, waits)
        room = max(room - _copied_size(context, answer), 0)
        if answer.read is not None and answer.read.size:
            found_data = True
            left -= answer.read.size
        answers.append(answer)
    return answers


def _is_held_back(broker: Broker, partition: Partition, replica: ReplicaState) -> bool:
    """Whether a follower gets nothing while the quota of leaders is exceeded: never one that is in sync."""
    is_in_sync = replica.replica_id in partition.isr
    return not is_in_sync and broker.throttles.leader.is_throttled(partition.topic, partition.index)


def _copied_size(context: RequestContext, answer: Answer) -> int:
    """Memory that the answer will hold."""
    place = answer.read.slice if answer.read is not None and answer.read.size else None
    return 0 if place is None or _is_sent_as_it_lies(context, place) else place.size


def _end_offset(request: FetchRequest, partition: Partition, replica: ReplicaState | None) -> int:
    """How far the asker may see."""
    if replica is not None:
        return partition.log.end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _empty(partition: Partition, wish: FetchPartition) -> PartitionData:
    return PartitionData(
        partition_index=wish.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _diverging(key: PartitionKey, wish: FetchPartition, partition: Partition, found: EpochEnd) -> Answer:
    """The asker's log goes on where ours does not."""
    data = _empty(partition, wish)
    if found.epoch == NO_EPOCH:
        return Answer(key, _failed(data, ErrorCode.OFFSET_OUT_OF_RANGE), partition, None)
    data.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
    return Answer(key, data, partition, None)


def _plan_partition(
    request: FetchRequest,
    key: PartitionKey,
    wish: FetchPartition,
    partition: Partition,
    end: int,
    left: int,
    at_least_one: bool,
    waits: bool,
) -> Answer:
    data = _empty(partition, wish)
    if request.isolation_level == READ_COMMITTED:
        data.aborted_transactions = []
    if not partition.log.log_start_offset <= wish.fetch_offset <= partition.log.end_offset:
        return Answer(key, _failed(data, ErrorCode.OFFSET_OUT_OF_RANGE), partition, None)
    size_max = min(wish.partition_max_bytes, left)
    if size_max <= 0 and not at_least_one:
        return Answer(key, data, partition, None)
    try:
        read = partition.log.read(
            wish.fetch_offset, max(size_max, 0), end_offset=end, at_least_one=at_least_one, waits=waits
        )
        if isinstance(read, ErrorCode):
            return Answer(key, _failed(data, read), partition, None)
        if data.aborted_transactions is not None and read.size:
            data.aborted_transactions = _aborted(partition.log, wish.fetch_offset, end, read)
    except NotCached as missing:
        raise ColdLookup(partition.log, missing.place) from None
    except OSError as error:
        return Answer(key, _unreadable(partition.log, data, error), partition, None)
    return Answer(key, data, partition, read, wish.fetch_offset)


def _aborted(log: Log, fetch_offset: int, end_offset: int, read: LogRead) -> list[AbortedTransaction]:
    """The aborted transactions that may reach into what is read.

    By their first offsets: Apache Kafka's order is that of the markers, and some clients walk the list as it comes.
    """
    found = log.aborted_transactions(fetch_offset, min(end_offset, log.segment_end_offset(read.base_offset)))
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in sorted(found, key=lambda each: each.first_offset)
    ]


def _failed(data: PartitionData, error: ErrorCode) -> PartitionData:
    data.error_code = error
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    data.aborted_transactions = None
    return data


def _unreadable(read_log: Log, data: PartitionData, error: OSError) -> PartitionData:
    """The disk refused, or the topic was deleted meanwhile. Others are not to suffer for it."""
    log.error("a fetch could not be read: %s", error)
    read_log.fail_unless_passing(error)
    return _failed(data, ErrorCode.KAFKA_STORAGE_ERROR)


def _unknown(broker: Broker, key: PartitionKey) -> PartitionData:
    topic, index = key
    return _without_data(index, broker.replicas.why_not(topic, index))


def _without_data(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=b"")


def _respond(
    broker: Broker, context: RequestContext, fetch: FetchContext, is_incremental: bool, answers: list[Answer]
) -> FetchResponse | Pending[FetchResponse]:
    """Answer with what the page cache has; what it lacks is brought there beside the loop.

    Of a large slice nothing is read at all where the connection can send it as it lies in its file.
    """
    cold: list[tuple[Log, PartitionData, FileSlice]] = []
    suspects: list[tuple[Log, PartitionData, FileSlice]] = []
    served = context.connection.served  # kept: a follower asks for others before it comes back to what it refused
    if len(served) > SERVED_MAX:
        served.clear()
    for answer in answers:
        read = answer.read
        if read is not None and read.size:
            assert read.slice is not None and answer.partition is not None
            before, offset = served.get(answer.key), answer.read_offset
            served[answer.key] = ~offset if before in (offset, ~offset) else offset
            if before == offset:
                suspects.append((answer.partition.log, answer.data, read.slice))
                continue
            try:
                records = _cached(context, read.slice)
            except OSError as error:
                _unreadable(answer.partition.log, answer.data, error)
                continue
            if records is None:
                cold.append((answer.partition.log, answer.data, read.slice))
            else:
                answer.data.records = records
    if not cold and not suspects:
        return _assemble(broker, context, fetch, is_incremental, answers)
    reply: Pending[FetchResponse] = Pending()
    memory, borrowed_size = broker.reply_memory, sum(_copied_size(context, answer) for answer in answers)
    memory.borrow(borrowed_size)

    async def read_cold() -> None:
        try:
            for read_log, data, place in suspects:
                await _serve_suspect(broker, context, read_log, data, place)
            for read_log, data, place in cold:
                try:
                    if _is_sent_as_it_lies(context, place):
                        await broker.environment.offload(place.warm)
                        data.records = place
                    else:
                        data.records = await broker.environment.offload(place.read)
                except OSError as error:
                    _unreadable(read_log, data, error)
        finally:
            memory.give_back(borrowed_size)
        reply.complete(_assemble(broker, context, fetch, is_incremental, answers))

    broker.spawn(read_cold())
    return reply


async def _serve_suspect(
    broker: Broker, context: RequestContext, read_log: Log, data: PartitionData, place: FileSlice
) -> None:
    """The asker had these bytes in its last reply and asks for them again: perhaps they are not what was written.

    Replicas and most clients check each batch and drop what is damaged; to whom keeps the log nobody else can say so.
    """

    is_sent_as_it_lies = _is_sent_as_it_lies(context, place)

    def checked() -> tuple[FetchedRecords, str | None]:
        if is_sent_as_it_lies:
            return place, damage_of(place)
        records = place.read()
        return records, damage_in(records)

    try:
        records, damage = await broker.environment.offload(checked)
    except OSError as error:
        _unreadable(read_log, data, error)
        return
    if damage is None:
        data.records = records
    else:
        read_log.damaged(f"{damage}, at or after position {place.position} of a segment")
        _failed(data, ErrorCode.KAFKA_STORAGE_ERROR)


def _cached(context: RequestContext, place: FileSlice) -> FetchedRecords | None:
    """What goes into the reply, None where the page cache lacks some of it. Raises OSError."""
    if _is_sent_as_it_lies(context, place):
        return place if place.file.is_cached(place.size, place.position) else None
    return place.file.pread_cached(place.size, place.position)


def _is_sent_as_it_lies(context: RequestContext, place: FileSlice) -> bool:
    return place.size >= SLICE_SIZE_MIN and place.file.fileno() is not None and context.connection.sends_files()


def _has_everything(answer: Answer, wish: FetchPartition) -> bool:
    """Whether a follower needs to hear of this partition no more until something happens to it."""
    partition = answer.partition
    return (
        partition is not None
        and not answer.is_urgent
        and not answer.data.records
        and answer.data.high_watermark == partition.high_watermark
        and wish.fetch_offset >= partition.log.end_offset
    )


def _assemble(
    broker: Broker, context: RequestContext, fetch: FetchContext, is_incremental: bool, answers: list[Answer]
) -> FetchResponse:
    session = fetch.session
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    has_failed = False
    for answer in answers:
        topic, _ = answer.key
        has_failed = has_failed or answer.data.error_code != ErrorCode.NONE
        if answer.partition is not None and answer.data.records:
            answer.partition.bytes_out += len(answer.data.records)
        if session is not None:
            cached = session.partitions.get(answer.key)
            has_news = cached is None or cached.has_news(answer.data)
            if session.news is not None and cached is not None and _has_everything(answer, cached.wish):
                session.news.keys.pop(answer.key, None)
            if is_incremental and not has_news:
                continue
            if answer.data.records and cached is not None:
                session.served(answer.key)
        response = topics.get(topic)
        if response is None:
            response = topics[topic] = (
                FetchableTopicResponse(topic=topic)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic_id=topic)
            )
        response.partitions.append(answer.data)
    reply = FetchResponse(session_id=session.id if session is not None else 0, responses=list(topics.values()))
    if has_failed and context.version >= FIRST_FETCH_VERSION:
        hint_fetch(broker, context, reply)
    return reply
