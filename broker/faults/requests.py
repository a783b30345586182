"""The handlers of a node with fault injection. Each checks for a fault before it handles a request.

    request ──▶ Faults.note_arrival ──▶ Faults.fault_for ──▶ no fault ──▶ the handler
                                                        └──▶ a fault: an error, a given answer, the handler and then no
                                                             answer, …

An error is put into the response like any refusal (`protocol/refusals.py`). If the fault's scope names a resource, the
request is split (`parts.py`): the named part is refused and not carried out, the handler answers the rest, and the two
responses are joined. A request is refused as a whole if its response has no errors for single elements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from moldau.broker.apis.needs import change_response
from moldau.broker.faults.fault import Fault, Scope
from moldau.broker.faults.faults import Faults, text_of
from moldau.broker.faults.messages import message_from_json
from moldau.broker.faults.parts import request_part
from moldau.broker.faults.subjects import TopicNames, give_topic_ids, subject_of, topic_name
from moldau.broker.network.replies import encode_response
from moldau.broker.network.route import Handler, RequestContext
from moldau.broker.runtime.pending import Pending, call_with_response
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.produce import ProduceRequest, copy_records
from moldau.protocol.refusals import refused, refused_parts
from moldau.protocol.schema import fields_of, response_class_of

if TYPE_CHECKING:
    from moldau.broker.network.connection import Connection


class FaultyRequests:
    """Wraps the handlers of a node, so that faults apply to their requests. `name_of` gives the name of a topic by its
    id.
    """

    def __init__(self, faults: Faults, loop: asyncio.AbstractEventLoop, name_of: TopicNames) -> None:
        self._faults = faults
        self._loop = loop
        self._name_of = name_of

    def wrap(self, handle: Handler) -> Handler:
        """Make a handler that checks for a fault before it calls `handle`."""

        def faulty(context: RequestContext, request: object) -> object:
            if request is None or context.is_part:
                return handle(context, request)
            subject = subject_of(context, request, self._name_of)
            faults = self._faults
            if subject.from_node < 0:
                faults.note("request", text_of(subject))
            faults.note_arrival(subject)
            fault = faults.fault_for(subject)
            if fault is None:
                return handle(context, request)
            return self._met(fault, handle, context, request)

        return faulty

    def _met(self, fault: Fault, handle: Handler, context: RequestContext, request: object) -> object:
        action = fault.action
        is_answered = not (isinstance(request, ProduceRequest) and request.acks == 0)
        if action.error is not None:
            if not is_answered:
                close_connection(context, f"a fault gives {action.error.name} to a request without an answer")
                return None
            return refused_named(fault.scope, action.error, handle, context, request, self._name_of)
        if action.answer is not None:
            if not is_answered:
                return None
            answer = message_from_json(response_class_of(type(request)), action.answer)
            give_topic_ids(answer, request, self._name_of)
            return answer
        if action.reset:
            close_connection(context, "a fault resets it")
            return None
        if action.hold:
            held = self._held(fault, handle, context, request)
            return held if is_answered else None
        result = handle(context, request)
        if action.throttle_ms is not None:
            return change_response(
                result, lambda response: throttle_response(context, response, action.throttle_ms or 0)
            )
        if action.delay_ms is not None:
            if result is None:
                return None
            late: Pending[object] = Pending()
            delay_s = action.delay_ms / 1000
            call_with_response(result, lambda response: self._later(delay_s, lambda: late.complete(response)))
            return late
        lost: Pending[object] = Pending()
        call_with_response(result, lambda response: lose_response(context, response, is_cut=action.cut_answer))
        return lost

    def _held(self, fault: Fault, handle: Handler, context: RequestContext, request: object) -> Pending[object]:
        """Hold a request until the fault releases it. If its connection is closed, it is dropped, unless it expects no
        response."""
        if isinstance(request, ProduceRequest):
            copy_records(request)
        held: Pending[object] = Pending()

        def goes_on() -> None:
            response = handle(context, request)
            if response is not None:
                held.follow(response)

        held.on_abandon = lambda: self._faults.drop(goes_on)
        self._faults.hold(fault, goes_on)
        return held

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, call)


def refused_named(
    scope: Scope, error: ErrorCode, handle: Handler, context: RequestContext, request: object, name_of: TopicNames
) -> object:
    """Answer a request with an error for the elements that the scope names; `handle` answers the others. If the scope
    names no resource, the whole request is refused.
    """
    if not scope.names_resource:
        return refused(request, context.version, error)
    if isinstance(request, FetchRequest):
        answer = handle(context, request)
        return change_response(answer, lambda response: without_records(response, scope, error, name_of))
    named = request_part(request, scope, name_of, is_named=True)
    others = request_part(request, scope, name_of, is_named=False)
    refusal = None if named is None else refused_parts(named, context.version, error)
    if others is None or not has_elements(refusal):
        return refused(request, context.version, error)
    return merge_responses(handle(context, others), refusal)


def without_records(response: object, scope: Scope, error: ErrorCode, name_of: TopicNames) -> object:
    """Replace the records of the partitions that the scope names by an error, in the response to a Fetch. The request
    need not be split, because a Fetch changes nothing.
    """
    assert isinstance(response, FetchResponse), "the response to a fetch"
    for topic in response.responses:
        if topic_name(topic, name_of) == scope.topic:
            for each in topic.partitions:
                if scope.partition in (None, each.partition_index):
                    each.error_code, each.records, each.high_watermark = error, b"", -1
    return response


def has_elements(response: object) -> bool:
    """Whether a response has results for single elements; False for None."""
    return response is not None and any(
        field.is_array and getattr(response, field.name) for field in fields_of(type(response))
    )


def merge_responses(one: object, other: object) -> object:
    """Join the responses to the two parts of a split request: the lists of `other` are appended to those of `one`. A
    part may be a pending reply.
    """
    both: Pending[object] = Pending()

    def join(first: object, second: object) -> None:
        for field in fields_of(type(first)):
            if field.is_array and field.struct is not None:
                setattr(first, field.name, [*getattr(first, field.name), *getattr(second, field.name)])
        both.complete(first)

    call_with_response(one, lambda first: call_with_response(other, lambda second: join(first, second)))
    return both


def throttle_response(context: RequestContext, response: object, throttle_ms: int) -> object:
    """Set the throttle time of a response, and throttle its connection."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    context.connection.throttle(throttle_ms)
    return response


def close_connection(context: RequestContext, reason: str) -> None:
    """Close the connection of a request at once."""
    connection = cast("Connection", context.connection)
    connection.close(reason)
    connection.abort()


def lose_response(context: RequestContext, response: object, *, is_cut: bool) -> None:
    """Close the connection of a request instead of sending its response. If `is_cut`, the first half of the response is
    sent, unless an earlier request still waits for its response.
    """
    connection = cast("Connection", context.connection)
    if not is_cut or response is None:
        close_connection(context, "a fault loses the answer")
        return
    pieces, _ = encode_response(context, response)
    whole = b"".join(bytes(piece) for piece in pieces if isinstance(piece, (bytes, bytearray, memoryview)))
    half = whole[: len(whole) // 2]
    replies = connection.replies
    if replies.waiting and replies.waiting[0].context is context:
        replies.waiting.popleft()
        replies.abandon()  # The replies behind it are not sent: the client would take them for the other half.
    replies.put(context, [half], len(half))
    connection.close("a fault cuts the answer")
