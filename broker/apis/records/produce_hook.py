"""The hook of Produce: appends and answers a small request that repeats the previous one, without decoding it.

The hook learns from the second of two successive requests for the same single partition: it keeps the parts that their
frames have in common (`ProduceTemplate`). A later frame with the same parts is appended with the result that `handle`
would have; several that have arrived together are appended in one write. A frame that differs, or whose records must be
validated in an executor thread, is decoded and handled like any other.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.records.produce_reply import (
    TOPIC_ID_VERSION,
    must_wait,
    partition_response,
    reply_when_committed,
)
from moldau.broker.apis.services import Services
from moldau.broker.network.route import ClientConnection, FrameAnswer, FrameHook, RequestContext, Route
from moldau.broker.purgatory.purgatory import AppendedRecords
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import ProduceRequest, TopicProduceResponse
from moldau.protocol.produce_template import CORRELATION_ID, SIZE, ProduceTemplate, produce_template_of
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CODEC_MASK
from moldau.replication.partition import Partition
from moldau.security.access import Access, AclOperation, ResourceKind
from moldau.storage.log.append import AppendResult

NONE: Final = ErrorCode.NONE
"""The enum's member as a global name, because its lookup costs as much as a call."""
RUN_FRAMES_MAX: Final = 8
"""The most frames that are appended in one write. The clock is not read between them."""
RUN_SIZE_MAX: Final = 1 << 18
"""The maximum size (bytes) of the frames that are appended in one write. Larger frames gain nothing from a common
write."""


class RepeatedProduce:
    """What successive requests of a producer have in common: their frames, and the partition to which they append.

    `request` is the last decoded request. `generation` is that of the replicas when the partition was looked up.
    """

    __slots__ = ("generation", "partition", "request", "template")

    def __init__(
        self, template: ProduceTemplate, request: ProduceRequest, partition: Partition, generation: int
    ) -> None:
        self.template = template
        self.request = request
        self.partition = partition
        self.generation = generation


class ProduceHook(FrameHook):
    """The hook of one connection. It saves time because most producers send to one partition several times in a row."""

    def __init__(self, services: Services, route: Route) -> None:
        super().__init__(route)
        self._services = services
        self._replicas = services.replicas
        self._flusher = services.flusher
        self._wall_ms = services.environment.wall_ms
        self._repeated: RepeatedProduce | None = None
        """What the last requests have in common; None if the next request must be decoded."""
        self._last_place: Place | None = None
        """The partition of the last decoded request; None if it had several."""

    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        repeated = self._repeated
        if repeated is None:
            return None
        records = repeated.template.records_in(frame)
        if records is None:
            return None
        # The generation identifies the set of replicas: while it is the same, the name refers to the partition that was
        # looked up.
        if self._replicas.generation != repeated.generation:
            self._repeated = None
            return None
        partition = repeated.partition
        acks = repeated.request.acks
        result = partition.append(records, acks, self._wall_ms(), repeated.template.version)
        if result.is_postponed:  # Nothing was appended: `handle` has the batch examined in a thread.
            self._repeated = None
            return None
        if partition.awaits_write_back:
            self._flusher.write_back(partition.log)
        return self._answer(connection, repeated, frame, result, must_wait(partition, acks))

    def answer_run(
        self, connection: ClientConnection, received: memoryview, frame_size_max: int
    ) -> list[tuple[memoryview, FrameAnswer]]:
        repeated = self._repeated
        if repeated is None or self._replicas.generation != repeated.generation:
            return []
        frames: list[memoryview] = []
        batches: list[memoryview] = []
        position, size_left = 0, min(RUN_SIZE_MAX, frame_size_max)
        while len(frames) < RUN_FRAMES_MAX and len(received) - position >= 4:
            size = SIZE(received, position)[0]
            end = position + 4 + size
            if not 0 < size <= size_left or end > len(received):
                break
            frame = received[position + 4 : end]
            records = repeated.template.records_in(frame)
            if records is None or records[ATTRIBUTES_POSITION + 1] & CODEC_MASK:
                break  # A run has no compressed batches: its log would check the batch, and `answer` once more.
            frames.append(frame)
            batches.append(records)
            size_left -= size
            position = end
        if len(frames) < 2:
            return []
        partition, acks = repeated.partition, repeated.request.acks
        results = partition.append_batches(batches, acks, self._wall_ms(), repeated.template.version)
        if results and partition.awaits_write_back:
            self._flusher.write_back(partition.log)
        waits = must_wait(partition, acks)
        answers: list[tuple[memoryview, FrameAnswer]] = []
        for index in range(len(results)):
            frame = frames[index]
            answers.append((frame, self._answer(connection, repeated, frame, results[index], waits)))
        return answers

    def _answer(
        self,
        connection: ClientConnection,
        repeated: RepeatedProduce,
        frame: memoryview,
        result: AppendResult,
        waits: bool,
    ) -> FrameAnswer:
        """The answer to a frame with this result. `waits`: whether an acknowledgement has to wait for other replicas
        or the disk."""
        if result.error is NONE and not waits:
            return repeated.template.reply(
                frame, result.base_offset, result.log_append_time_ms, result.log_start_offset
            )
        context = self.context_of(connection, frame)
        return context, self._response(context, repeated, result)

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        repeated = self._repeated
        assert repeated is not None, "a frame was answered"
        correlation_id: int = SIZE(frame, CORRELATION_ID.start)[0]
        context = RequestContext(connection, self.route, repeated.template.version, correlation_id, self.client_id)
        context.request = repeated.request
        return context

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        """Prepare for frames that repeat this one, if it is the second in a row for its partition. Returns whether such
        frames are answered here from now on."""
        assert isinstance(request, ProduceRequest)
        self.client_id = context.client_id
        place = only_partition_of(request)
        is_second = place is not None and place == self._last_place
        self._last_place = place
        self._repeated = self._learned(context, frame, request) if is_second else None
        for topic in request.topic_data:
            for data in topic.partition_data:
                data.records = None  # A waiting request must not keep the buffer in which they arrived.
        return self._repeated is not None

    def partitions(self) -> list[str]:
        repeated = self._repeated
        return [] if repeated is None else [f"{repeated.partition.topic}-{repeated.partition.index}"]

    def _learned(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> RepeatedProduce | None:
        topic = request.topic_data[0]
        by_id = context.version >= TOPIC_ID_VERSION
        partition = self._replicas.find((topic.topic_id if by_id else topic.name, topic.partition_data[0].index))
        if partition is None or partition.is_internal or request.transactional_id is not None:
            return None
        template = produce_template_of(frame, context.version, request)
        return None if template is None else RepeatedProduce(template, request, partition, self._replicas.generation)

    def _response(self, context: RequestContext, repeated: RepeatedProduce, result: AppendResult) -> object:
        """Make the response that `handle` would make. A refusal is sent at once, an acknowledgement when `acks` allows
        it."""
        request, partition = repeated.request, repeated.partition
        asked = request.topic_data[0]
        answer = partition_response(partition.index, result)
        # Of a duplicate the result is that of its first append, and what it waits for is the end of the log.
        end_offset = partition.log.end_offset if result.is_duplicate else result.last_offset + 1
        parked = [AppendedRecords(partition, end_offset, answer)] if result.error is NONE else []
        topic = TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[answer])
        return reply_when_committed(self._services, context, request, [topic], parked, result.error is not NONE)


class AuthorizedProduceHook(ProduceHook):
    """The hook on a node with an authorizer. Frames are answered here only while the client may write to the topic.

    A decision of the ACLs is used again until it may have changed, unless the audit log needs a line for each request.
    """

    def __init__(self, services: Services, route: Route) -> None:
        super().__init__(services, route)
        self._remembers = not services.config.flag("moldau.audit.log.allowed")
        self._allowed: RepeatedProduce | None = None
        """The requests that the client may repeat, while its access is `_access` and has the stamp `_stamp`."""
        self._access: Access | None = None
        self._stamp = 0

    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        return super().answer(connection, frame) if self._is_allowed(connection) else None

    def answer_run(
        self, connection: ClientConnection, received: memoryview, frame_size_max: int
    ) -> list[tuple[memoryview, FrameAnswer]]:
        if not self._remembers or not self._is_allowed(connection):
            return []
        return super().answer_run(connection, received, frame_size_max)

    def _is_allowed(self, connection: ClientConnection) -> bool:
        """Whether the client may write to the topic of the next frames. If not, they are decoded."""
        repeated = self._repeated
        if repeated is None:
            return False
        access = connection.access
        stamp = access.stamp
        if repeated is not self._allowed or access is not self._access or stamp != self._stamp:
            topic = repeated.partition.topic
            if not access.allows(AclOperation.WRITE, ResourceKind.TOPIC, topic, logs_denied=False):
                self._repeated = None  # the rule of the API refuses the frame, and logs that
                return False
            if self._remembers:
                self._allowed, self._access, self._stamp = repeated, access, stamp
        return True


def produce_hook(services: Services, route: Route) -> ProduceHook:
    """Make the hook of a new connection."""
    return AuthorizedProduceHook(services, route) if services.has_authorizer else ProduceHook(services, route)


Place = tuple[str, bytes, int]
"""A partition: the topic's name, the topic's id, and the partition index. One of the first two is empty."""


def only_partition_of(request: ProduceRequest) -> Place | None:
    """The partition of a request with a single partition and acks of 1 or -1; None for other requests."""
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1 or request.acks not in (-1, 1):
        return None
    return topics[0].name, topics[0].topic_id, topics[0].partition_data[0].index
