"""The handlers of a node with faults on demand: each asks the faults before it handles a request.

    request ──▶ came ──▶ meet ──▶ no fault ──▶ the handler
                           └──▶ a fault: an error, a given answer, the handler and then no answer, …

An error for a whole request is given as any request is refused (`protocol/refusals.py`). One for what the fault's scope
names is given as Kafka refuses what a client may not do: what the API needs is asked of an access that refuses what is
named. So the refused parts have no effect, the others have theirs; then the error replaces that of the authorization.
An API whose handler asks the ACLs is refused so in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from moldau.broker.apis.api import Api, error_replacement
from moldau.broker.apis.needs import change_response, handler_asks
from moldau.broker.faults.fault import Fault, Scope, Subject
from moldau.broker.faults.faults import Faults, text_of
from moldau.broker.faults.messages import message_from_json
from moldau.broker.faults.subjects import (
    TopicNames,
    give_topic_ids,
    partition_field,
    partition_list,
    partition_number,
    subject_of,
    topic_name,
)
from moldau.broker.network.replies import encoded
from moldau.broker.network.route import Handler, ListenerRole, RequestContext
from moldau.broker.runtime.pending import Pending, when_ready
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.refusals import refused
from moldau.protocol.schema import default_struct, fields_of, response_class_of
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.connection import Connection
    from moldau.broker.network.route import ClientConnection

REFUSALS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
)
"""The errors of the rules of authorization."""


class RefusingAccess:
    """The access of a client, without what the scope of a fault names; without everything if it names nothing."""

    stamp: Final = -1
    is_unrestricted: Final = False

    def __init__(self, scope: Scope, access: Access) -> None:
        self._scope = scope
        self._access = access
        self.principal = access.principal

    def begin_request(self) -> bool:
        return False

    def end_request(self) -> None:
        raise AssertionError("no request was begun")

    def decision_for_all(self, operation: AclOperation, kind: ResourceKind) -> bool | None:
        return None if self._scope.names_resource else False

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        if self._refuses(kind, name):
            return False
        return self._access.allows(operation, kind, name, logs_allowed=logs_allowed, logs_denied=logs_denied)

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        return self._scope.names_resource and self._access.allows_for_any(operation, kind)

    def _refuses(self, kind: ResourceKind, name: str) -> bool:
        scope = self._scope
        if not scope.names_resource:
            return True
        named = {
            ResourceKind.TOPIC: scope.topic,
            ResourceKind.GROUP: scope.group,
            ResourceKind.TRANSACTIONAL_ID: scope.transactional_id,
        }
        return named.get(kind) == name


class RefusedConnection:
    """The connection of a request with another access."""

    def __init__(self, connection: object, access: Access) -> None:
        self._connection = connection
        self.access = access

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


class FaultyRequests:
    """Wraps the handlers of a node. `name_of` gives the name of a topic by its id."""

    def __init__(self, faults: Faults, loop: asyncio.AbstractEventLoop, name_of: TopicNames) -> None:
        self._faults = faults
        self._loop = loop
        self._name_of = name_of

    def wrap(self, row: Api[Any], role: ListenerRole, services: Services, handle: Handler) -> Handler:
        """The handler of an API behind the faults."""

        refusable = RefusableApi(row, role, services, handle)

        def faulty(context: RequestContext, request: object) -> object:
            if request is None or context.is_part:
                return handle(context, request)
            subject = subject_of(context, request, self._name_of)
            faults = self._faults
            if subject.from_node < 0:
                faults.note("request", text_of(subject))
            faults.came(subject)
            fault = faults.meet(subject)
            if fault is None:
                return handle(context, request)
            return self._met(fault, subject, refusable, context, request)

        return faulty

    def _met(
        self, fault: Fault, subject: Subject, refusable: RefusableApi, context: RequestContext, request: object
    ) -> object:
        action = fault.action
        if action.error is not None:
            return self._refused(fault, subject, refusable, context, request)
        if action.answer is not None:
            answer = message_from_json(refusable.response_class, action.answer)
            give_topic_ids(answer, request, self._name_of)
            return answer
        if action.reset:
            break_off(context, "a fault resets it")
            return None
        if action.hold:
            held: Pending[object] = Pending()

            def goes_on() -> None:
                when_ready(refusable.handle(context, request), lambda response: held.complete(response))

            held.on_abandon = lambda: self._faults.drop(goes_on)
            self._faults.hold(fault, goes_on)
            return held
        result = refusable.handle(context, request)
        if action.throttle_ms is not None:
            return change_response(result, lambda response: throttled(context, response, action.throttle_ms or 0))
        if action.delay_ms is not None:
            late: Pending[object] = Pending()
            delay_s = action.delay_ms / 1000
            when_ready(result, lambda response: self._later(delay_s, lambda: late.complete(response)))
            return late
        lost: Pending[object] = Pending()
        when_ready(result, lambda response: lose(context, response, is_cut=action.cut_answer))
        return lost

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, call)

    def _refused(
        self,
        fault: Fault,
        subject: Subject,
        refusable: RefusableApi,
        context: RequestContext,
        request: object,
    ) -> object:
        """The answer with the fault's error for what its scope names."""
        scope, error = fault.scope, fault.action.error
        assert error is not None, "only an error refuses"
        if isinstance(request, ProduceRequest) and request.acks == 0:
            break_off(context, f"a fault gives {error.name} to a request without an answer")
            return None
        partition = scope.partition
        if partition is None or subject.topics.get(scope.topic or "") == frozenset((partition,)):
            return refusable.refused(scope, error, context, request)
        if isinstance(request, FetchRequest):
            answer = refusable.handle(context, request)
            return change_response(answer, lambda response: self._without_records(response, scope, error))
        named = refusable.refused(scope, error, context, self._part(request, scope, is_refused=True))
        return joined(refusable.handle(context, self._part(request, scope, is_refused=False)), named)

    def _part(self, value: object, scope: Scope, *, is_refused: bool) -> object:
        """A copy of a request, or of a part of it, with the partition of the scope alone, or with all others."""
        made = default_struct(type(value))
        for field in fields_of(type(value)):
            found = getattr(value, field.name)
            if field.is_array and field.struct is not None and found:
                found = [self._part(each, scope, is_refused=is_refused) for each in found]
                if "topic" in field.name:
                    found = [each for each in found if partition_list(each)]
            setattr(made, field.name, found)
        listed = partition_field(value)
        if listed is not None and hasattr(value, "topic_id") | hasattr(value, "name") | hasattr(value, "topic"):
            is_named = topic_name(value, self._name_of) == scope.topic
            chosen = [
                each
                for each in partition_list(value)
                if (is_named and partition_number(each) == scope.partition) is is_refused
            ]
            setattr(made, listed.name, chosen)
        return made

    def _without_records(self, response: object, scope: Scope, error: ErrorCode) -> object:
        """A fetch has no effect, so the error replaces the records of one partition."""
        assert isinstance(response, FetchResponse), "the response to a fetch"
        for topic in response.responses:
            if topic_name(topic, self._name_of) == scope.topic:
                for each in topic.partitions:
                    if each.partition_index == scope.partition:
                        each.error_code, each.records, each.high_watermark = error, b"", -1
        return response


class RefusableApi:
    """An API of the node, whose rule of authorization gives the answers with errors."""

    def __init__(self, row: Api[Any], role: ListenerRole, services: Services, handle: Handler) -> None:
        self.handle = handle
        self.response_class = response_class_of(row.request)
        self._services = services
        self._rule = row.needs if row.is_forwardable else row.rule_of(role)

    def refused(self, scope: Scope, error: ErrorCode, context: RequestContext, request: object) -> object:
        """The answer to a request with this error for all that the scope names."""
        if not scope.names_resource and self._rule is not handler_asks:
            return refused(request, context.version, error)
        connection = RefusedConnection(context.connection, RefusingAccess(scope, context.access))
        asking = RequestContext(
            cast("ClientConnection", connection),
            context.route,
            context.version,
            context.correlation_id,
            context.client_id,
        )
        asking.request, asking.request_size = context.request, context.request_size
        replace = error_replacement(self.response_class, dict.fromkeys(REFUSALS, error))

        def replaced(response: object) -> object:
            if replace is not None:
                replace(response)
            if not scope.names_resource and hasattr(response, "error_code"):
                response.error_code = error  # The handler may have asked nothing.
            return response

        return change_response(self._rule(self._services, asking, request, self.handle), replaced)


def joined(one: object, other: object) -> object:
    """The answers to two parts of a request as one: their lists one after the other."""
    both: Pending[object] = Pending()

    def join(first: object, second: object) -> None:
        for field in fields_of(type(first)):
            if field.is_array and field.struct is not None:
                setattr(first, field.name, [*getattr(first, field.name), *getattr(second, field.name)])
        both.complete(first)

    when_ready(one, lambda first: when_ready(other, lambda second: join(first, second)))
    return both


def throttled(context: RequestContext, response: object, throttle_ms: int) -> object:
    """The response with a throttle time, which the connection obeys."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    context.connection.throttle(throttle_ms)
    return response


def break_off(context: RequestContext, reason: str) -> None:
    """End the connection at once."""
    connection = cast("Connection", context.connection)
    connection.close(reason)
    connection.abort()


def lose(context: RequestContext, response: object, *, is_cut: bool) -> None:
    """End the connection in place of an answer; if it is cut, after the first half of it."""
    connection = cast("Connection", context.connection)
    if not is_cut or response is None:
        break_off(context, "a fault loses the answer")
        return
    pieces, _ = encoded(context, response)
    whole = b"".join(bytes(piece) for piece in pieces if isinstance(piece, (bytes, bytearray, memoryview)))
    half = whole[: len(whole) // 2]
    connection.replies.put(context, [half], len(half))
    connection.close("a fault cuts the answer")
