"""The hook of Produce: appends and answers a small request that repeats the previous one, without decoding it.

The hook learns from the second of two successive requests for the same single partition: it keeps the parts that their
frames have in common (`ProduceTemplate`). A later frame with the same parts is appended with the result that `handle`
would have. A frame that differs, or whose records must be validated in an executor thread, is decoded and handled like
any other. Successive frames differ only in the correlation id, the sizes and the records:

    request   size · key, version · correlation id · PREFIX (client id to partition index) · size · records · TAGS
    reply     size · correlation id · MIDDLE (topic, index, no error) · base offset, append time, start offset · TAIL
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.broker.apis.records.produce_reply import TOPIC_ID_VERSION, answer_of, finish, must_wait
from moldau.broker.apis.services import Services
from moldau.broker.network.route import ClientConnection, FrameHook, RequestContext, Route
from moldau.broker.purgatory.purgatory import AppendedRecords
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.primitives import uvarint
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT
from moldau.replication.partition import Partition
from moldau.security.access import Access, AclOperation, ResourceKind
from moldau.storage.log.append import AppendResult

NONE: Final = ErrorCode.NONE
"""The enum's member as a global name, because its lookup costs as much as a call."""
_CORRELATION_ID: Final = struct.Struct(">i").unpack_from
CORRELATION_ID: Final = slice(4, 8)
PREFIX_POSITION: Final = 8
FIRST_VERSION: Final = 5
"""The first version whose response has base offset, append time and log start offset in sequence."""
FIRST_FLEXIBLE_VERSION: Final = 9
TAGS: Final = b"\0\0\0"
"""The empty tagged fields of the partition, the topic and the request, in a flexible version."""
TRANSACTIONAL_POSITION: Final = ATTRIBUTES_POSITION + 1
PLACES: Final = struct.Struct(">qqq").pack
MARKS: Final = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)
"""Placeholders for base offset, append time and log start offset, with which their positions in the reply are found."""
SIZE: Final = struct.Struct(">i").unpack_from
REPLY_HEAD: Final = struct.Struct(">i").pack
RECORDS_SIZE_MAX: Final = 1 << 21
"""The most bytes of records in a frame that the hook answers. A larger size field has more than three bytes."""


class ProduceHook(FrameHook):
    """The hook of one connection. It saves time because most producers send to one partition several times in a row."""

    def __init__(self, services: Services, route: Route) -> None:
        super().__init__(route)
        self._services = services
        self._replicas = services.replicas
        self._flusher = services.flusher
        self._wall_ms = services.environment.wall_ms
        self._repeated: ProduceTemplate | None = None
        """The common parts of the last requests; None if the next request must be decoded."""
        self._last_place: Place | None = None
        """The partition of the last decoded request; None if it had several."""

    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes | tuple[RequestContext, object] | None:
        repeated = self._repeated
        if repeated is None:
            return None
        records = repeated.records_in(frame)
        if records is None:
            return None
        # The generation identifies the set of replicas: while it is the same, the name refers to the partition that was
        # looked up.
        if self._replicas.generation != repeated.generation:
            self._repeated = None
            return None
        partition = repeated.partition
        acks = repeated.request.acks
        result = partition.append(records, acks, self._wall_ms(), repeated.version)
        if result.is_postponed:  # Nothing was appended: `handle` has the batch examined in a thread.
            self._repeated = None
            return None
        if partition.awaits_write_back:
            self._flusher.write_back(partition.log)
        if result.error is NONE and not must_wait(partition, acks):
            return repeated.reply(frame, result)
        context = self.context_of(connection, frame)
        return context, self._response(context, repeated, result)

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        repeated = self._repeated
        assert repeated is not None, "a frame was answered"
        context = RequestContext(connection, self.route, repeated.version, _CORRELATION_ID(frame, 4)[0], self.client_id)
        context.request = repeated.request
        return context

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        """Prepare for frames that repeat this one, if it is the second in a row for its partition. Returns whether such
        frames are answered here from now on."""
        assert isinstance(request, ProduceRequest)
        self.client_id = context.client_id
        place = place_of(request)
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

    def _learned(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> ProduceTemplate | None:
        topic = request.topic_data[0]
        by_id = context.version >= TOPIC_ID_VERSION
        partition = self._replicas.find((topic.topic_id if by_id else topic.name, topic.partition_data[0].index))
        if partition is None or partition.is_internal or request.transactional_id is not None:
            return None
        return produce_template_of(frame, context.version, request, partition, self._replicas.generation)

    def _response(self, context: RequestContext, repeated: ProduceTemplate, result: AppendResult) -> object:
        """Make the response that `handle` would make. A refusal is sent at once, an acknowledgement when `acks` allows
        it."""
        request, partition = repeated.request, repeated.partition
        asked = request.topic_data[0]
        answer = answer_of(partition.index, result)
        parked = [AppendedRecords(partition, partition.log.end_offset, answer)] if result.error is NONE else []
        topic = TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[answer])
        return finish(self._services, context, request, [topic], parked, result.error is not NONE)


class AuthorizedProduceHook(ProduceHook):
    """The hook on a node with an authorizer. Frames are answered here only while the client may write to the topic.

    A decision of the ACLs is used again until it may have changed, unless the audit log needs a line for each request.
    """

    def __init__(self, services: Services, route: Route) -> None:
        super().__init__(services, route)
        self._remembers = not services.config.flag("moldau.audit.log.allowed")
        self._allowed: ProduceTemplate | None = None
        """The common parts that the client may use, while its access is `_access` and has the stamp `_stamp`."""
        self._access: Access | None = None
        self._stamp = 0

    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes | tuple[RequestContext, object] | None:
        repeated = self._repeated
        if repeated is None:
            return None
        access = connection.access
        stamp = access.stamp
        if repeated is not self._allowed or access is not self._access or stamp != self._stamp:
            topic = repeated.partition.topic
            if not access.allows(AclOperation.WRITE, ResourceKind.TOPIC, topic, logs_denied=False):
                self._repeated = None  # the rule of the API refuses the frame, and logs that
                return None
            if self._remembers:
                self._allowed, self._access, self._stamp = repeated, access, stamp
        return super().answer(connection, frame)


def produce_hook(services: Services, route: Route) -> ProduceHook:
    """Make the hook of a new connection."""
    return AuthorizedProduceHook(services, route) if services.has_authorizer else ProduceHook(services, route)


# The common parts of two frames


class ProduceTemplate:
    """The parts that the frames of one producer for one partition have in common, in one version."""

    __slots__ = (
        "_end",
        "_head",
        "_is_flexible",
        "_middle",
        "_prefix",
        "_reply_size",
        "_tail",
        "generation",
        "partition",
        "request",
        "version",
    )

    def __init__(
        self, head: bytes, prefix: bytes, version: int, request: ProduceRequest, partition: Partition, generation: int
    ) -> None:
        """`request` is the last decoded request. `generation` is that of the replicas when its partition was looked
        up."""
        self._head = head
        self._prefix = prefix
        self._end = PREFIX_POSITION + len(prefix)
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self.version = version
        self.request = request
        self.partition = partition
        self.generation = generation
        reply = encode(ProduceResponse(responses=[template(request, MARKS)]), version)
        place = reply.index(PLACES(*MARKS))
        self._middle = (b"\0" if self._is_flexible else b"") + reply[:place]
        self._tail = reply[place + 24 :]
        self._reply_size = REPLY_HEAD(4 + len(self._middle) + 24 + len(self._tail))

    def records_in(self, frame: memoryview) -> memoryview | None:
        """The records in a frame, if it has the common parts.

        Returns None for any other frame, for records of a transaction, and for control records."""
        position = self._end
        if bytes(frame[:4]) != self._head or bytes(frame[PREFIX_POSITION:position]) != self._prefix:
            return None
        end = len(frame)
        if self._is_flexible:
            end -= 3
            if end - position < HEADER_SIZE or bytes(frame[end:]) != TAGS:
                return None
            size, position = compact_size(frame, position)
        else:
            if end - position < HEADER_SIZE:
                return None
            size = SIZE(frame, position)[0]
            position += 4
        if size < HEADER_SIZE or end - position != size:
            return None
        is_plain = not frame[position + TRANSACTIONAL_POSITION] & (TRANSACTIONAL_BIT | CONTROL_BIT)
        return frame[position:end] if is_plain else None

    def reply(self, frame: memoryview, result: AppendResult) -> bytes:
        """Make the reply to `frame`, whose records were appended, as a whole frame."""
        places = PLACES(result.base_offset, result.log_append_time_ms, result.log_start_offset)
        return b"".join((self._reply_size, frame[CORRELATION_ID], self._middle, places, self._tail))


def template(request: ProduceRequest, places: tuple[int, int, int]) -> TopicProduceResponse:
    """The response to a successful request for one partition. `places` has base offset, append time and log start
    offset."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    base_offset, log_append_time_ms, log_start_offset = places
    answer = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])


def produce_template_of(
    frame: memoryview, version: int, request: ProduceRequest, partition: Partition, generation: int
) -> ProduceTemplate | None:
    """The common parts of further requests like this one; None if these cannot be recognised without decoding."""
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    records = data.records
    if (
        version < FIRST_VERSION
        or not isinstance(records, memoryview)
        or not HEADER_SIZE <= len(records) < RECORDS_SIZE_MAX
    ):
        return None
    size = len(records)
    field = uvarint(size + 1) if version >= FIRST_FLEXIBLE_VERSION else REPLY_HEAD(size)
    end = len(frame) - size - len(field) - (3 if version >= FIRST_FLEXIBLE_VERSION else 0)
    if end < PREFIX_POSITION or bytes(frame[end : end + len(field)]) != field:
        return None  # Such as the tags of a later release.
    data.records = None
    prefix = bytes(frame[PREFIX_POSITION:end])
    repeated = ProduceTemplate(bytes(frame[:4]), prefix, version, request, partition, generation)
    found = repeated.records_in(frame)
    return repeated if found is not None and found == records else None


def compact_size(frame: memoryview, position: int) -> tuple[int, int]:
    """Parse a compact size of at most three bytes, and return it with the position after it; -1 for a longer one."""
    first = frame[position]
    if first < 0x80:
        return first - 1, position + 1
    second = frame[position + 1]
    if second < 0x80:
        return (first & 0x7F | second << 7) - 1, position + 2
    third = frame[position + 2]
    if third < 0x80:
        return (first & 0x7F | (second & 0x7F) << 7 | third << 14) - 1, position + 3
    return -1, position


Place = tuple[str, bytes, int]
"""A partition: the topic's name, the topic's id, and the partition index. One of the first two is empty."""


def place_of(request: ProduceRequest) -> Place | None:
    """The partition of a request that has only one partition and is acknowledged; None for other requests."""
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1 or request.acks not in (-1, 1):
        return None
    return topics[0].name, topics[0].topic_id, topics[0].partition_data[0].index
