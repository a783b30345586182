"""The hook of Produce: a small produce that repeats the previous one is appended and answered without being decoded.

The hook learns from the second of two successive produces to the same single partition, and keeps the common parts of
their frames (`RepeatedProduce`). Later it appends a frame with the same parts, with the result that `handle` would
have, and answers it. A frame that differs, or whose records are to be examined in an executor thread, is decoded and
handled like any other.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.broker.network.route import ClientConnection, FrameHook, RequestContext, Route
from moldau.broker.purgatory.delayed_produce import AppendedRecords
from moldau.broker.requests.handlers.produce import (
    TOPIC_ID_VERSION,
    ProduceServices,
    answer_of,
    finish,
    must_wait,
)
from moldau.broker.requests.repeated_produce import Place, RepeatedProduce, learned, place_of
from moldau.protocol.access import AclOperation
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import ProduceRequest, TopicProduceResponse
from moldau.security.access import Access, ResourceKind
from moldau.storage.log.append_result import AppendResult

NONE: Final = ErrorCode.NONE
"""A local name for the enum member, because its lookup takes as long as a call."""
_CORRELATION_ID: Final = struct.Struct(">i").unpack_from


class ProduceHook(FrameHook):
    """The hook of one connection. Most producers send to one partition several times in a row."""

    def __init__(self, services: ProduceServices, route: Route) -> None:
        super().__init__(route)
        self._services = services
        self._replicas = services.replicas
        self._flusher = services.flusher
        self._wall_ms = services.environment.wall_ms
        self._repeated: RepeatedProduce | None = None
        """The common parts of the last produces."""
        self._last_place: Place | None = None
        """The partition of the last decoded produce; None where it had several."""

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
        """Learn from the second produce in a row to the same partition."""
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

    def _learned(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> RepeatedProduce | None:
        topic = request.topic_data[0]
        by_id = context.version >= TOPIC_ID_VERSION
        partition = self._replicas.find((topic.topic_id if by_id else topic.name, topic.partition_data[0].index))
        if partition is None or partition.is_internal or request.transactional_id is not None:
            return None
        return learned(frame, context.version, request, partition, self._replicas.generation)

    def _response(self, context: RequestContext, repeated: RepeatedProduce, result: AppendResult) -> object:
        """The response that `handle` would make: a refusal at once; for an append, when it may be acknowledged."""
        request, partition = repeated.request, repeated.partition
        asked = request.topic_data[0]
        answer = answer_of(partition.index, result)
        parked = [AppendedRecords(partition, partition.log.end_offset, answer)] if result.error is NONE else []
        topic = TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[answer])
        return finish(self._services, context, request, [topic], parked, result.error is not NONE)


class AuthorizedProduceHook(ProduceHook):
    """The hook on a node with an authorizer: the common parts are used only as long as the client may write to the
    topic.

    A decision is used again while nothing has changed that it depends on, unless the audit log has a line for each.
    """

    def __init__(self, services: ProduceServices, route: Route) -> None:
        super().__init__(services, route)
        self._remembers = not services.config.flag("moldau.audit.log.allowed")
        self._allowed: RepeatedProduce | None = None
        """The common parts that the client may use: by `_access`, as long as it has `_stamp`."""
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


def produce_hook(services: ProduceServices, route: Route) -> ProduceHook:
    """The hook of a new connection."""
    return AuthorizedProduceHook(services, route) if services.has_authorizer else ProduceHook(services, route)
