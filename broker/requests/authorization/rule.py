"""A rule: a function that runs before the handler of an API and asks the ACLs.

    request ──▶ rule ──▶ handler, with the elements that are allowed ──▶ rule: refusals are added ──▶ response
                  └──▶ the response that refuses everything

A node without an authorizer has no rules at all: its handlers are called directly.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from moldau.broker.metadata.refusals import refused
from moldau.broker.network.route import ListenerRole
from moldau.broker.requests.parts import consumed
from moldau.broker.runtime.pending import Pending, when_ready
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.errors import ErrorCode
from moldau.security.access import CLUSTER_NAME, Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.parts import Answering
    from moldau.broker.requests.services import Services

Answer = Callable[["RequestContext", object], object]
"""The handler behind a rule."""
Rule = Callable[["Services", "RequestContext", object, Answer], object]
"""Answers as a handler does: with the response, with a `Pending` that becomes it, or with None."""
Response = TypeVar("Response")


class Need(NamedTuple):
    """A permission that a request needs: an operation on a resource."""

    operation: AclOperation
    kind: ResourceKind
    name: str

    def is_met(self, access: Access) -> bool:
        return access.allows(self.operation, self.kind, self.name)

    def is_met_quietly(self, access: Access) -> bool:
        """Whether the permission is there; a refusal is not logged, because another permission may still allow the
        request.
        """
        return access.allows(self.operation, self.kind, self.name, logs_denied=False)


REFUSALS: Final = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error of a client that may not do something to a resource of the kind."""


def cluster(operation: AclOperation) -> Need:
    return Need(operation, ResourceKind.CLUSTER, CLUSTER_NAME)


def topic(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.TOPIC, name)


def group(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.GROUP, name)


def transactional_id(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.TRANSACTIONAL_ID, name)


def change_response(response: object, change: Callable[[Response], Response]) -> object:
    """The result of a handler with a change that is applied to the response, at once or when the response is there."""
    if not isinstance(response, Pending):
        return change(response)  # type: ignore[arg-type]
    reply: Pending[Response] = Pending(response.abandon, response.waits_for)
    response.listen(lambda response: reply.complete(change(response)))
    return reply


def only_visible(
    services: Services,
    context: RequestContext,
    response: object,
    results: str,
    is_visible: Callable[[Any], bool],
) -> object:
    """The result of a handler with those elements of a list that the client may see. They may be many: they are chosen
    in slices.
    """

    def chosen(whole: object) -> Answering:
        visible = []
        for each in consumed(getattr(whole, results)):
            yield
            if is_visible(each):
                visible.append(each)
        setattr(whole, results, visible)
        return whole

    if not isinstance(response, Pending):
        return services.long_requests.answer(context, chosen(response))
    reply: Pending[object] = Pending(response.abandon, response.waits_for)

    def choose(whole: object) -> None:
        answer = services.long_requests.answer(context, chosen(whole))
        if isinstance(answer, Pending):
            reply.on_abandon = answer.abandon
        when_ready(answer, reply.complete)

    response.listen(choose)
    return reply


# Rules that ask nothing here


def open_to_all(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """No permission is needed."""
    return answer(context, request)


def handler_asks(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """The handler asks the ACLs itself, because the permission depends on what it finds while it answers."""
    return answer(context, request)


def controller_asks(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A broker asks no ACLs: it forwards the request, and the controller asks them."""
    return answer(context, request)


# Rules as values


def refuse_all(context: RequestContext, request: object, error: ErrorCode) -> object:
    """The response with one error for the whole request, for APIs whose response has a field for it."""
    return refused(request, error)


@dataclass(frozen=True, slots=True)
class RequestRule:
    """One need for the whole request."""

    need: Callable[[object], Need]
    refuse: Callable[[RequestContext, object, ErrorCode], object] = refuse_all

    def __call__(self, services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        need = self.need(request)
        if need.is_met(context.access):
            return answer(context, request)
        return self.refuse(context, request, REFUSALS[need.kind])


@dataclass(frozen=True, slots=True)
class ElementsRule:
    """One need for each element of a list in the request. The refused elements come after the results of the allowed
    ones. A permission that several elements need is decided and logged once.
    """

    elements: str
    """The field of the request."""
    results: str
    """The field of the response."""
    need: Callable[[object], Need]
    refuse: Callable[[object, ErrorCode], object]
    """The result of an element that is refused."""

    def __call__(self, services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        allowed, refusals = [], []
        met: dict[Need, bool] = {}
        for element in getattr(request, self.elements):
            need = self.need(element)
            if need not in met:
                met[need] = need.is_met(context.access)
            if met[need]:
                allowed.append(element)
            else:
                refusals.append(self.refuse(element, REFUSALS[need.kind]))
        if not refusals:
            return answer(context, request)
        return change_response(answer(context, with_field(request, self.elements, allowed)), self._adding(refusals))

    def _adding(self, refusals: list[object]) -> Callable[[object], object]:
        def add(response: object) -> object:
            getattr(response, self.results).extend(refusals)
            return response

        return add


def with_field(request: Response, name: str, value: object) -> Response:
    """A copy of a request with one field replaced. The request itself must stay unchanged, because hooks compare it."""
    changed = copy(request)
    setattr(changed, name, value)
    return changed


def needs_cluster(
    operation: AclOperation, refuse: Callable[[RequestContext, object, ErrorCode], object] = refuse_all
) -> Rule:
    """The rule of an API that is about the cluster."""
    need = cluster(operation)
    return RequestRule(lambda request: need, refuse)


def field_of(name: str) -> Callable[[object], str]:
    """A function that gives the text field of a request that names a resource."""

    def read(element: object) -> str:
        text = getattr(element, name)
        assert isinstance(text, str)
        return text

    return read


def guarded(
    rule: Rule, role: ListenerRole, services: Services, answer: Answer
) -> Callable[[RequestContext, object], object]:
    """The handler of an API behind its rule. `answer` is the handler, `role` the role of the listener: one of
    the two.
    """
    is_for_leader = role is ListenerRole.CONTROLLER

    def handle(context: RequestContext, request: object) -> object:
        if is_for_leader and type(request) in CONTROLLER_APIS and services.quorum.active_controller is None:
            # The metadata of a controller that does not lead may be old: what it knows of ACLs decides nothing.
            return refused(request, ErrorCode.NOT_CONTROLLER)
        access = context.access
        begins = access.begin_request()
        try:
            return rule(services, context, request, answer)
        finally:
            if begins and not context.is_long:  # A long answer goes on in slices, and ends the request itself.
                access.end_request()

    return handle
