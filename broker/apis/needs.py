"""Rules: a rule runs before the handler of an API, and checks the ACLs.

    request ──▶ rule ──▶ handler, with the elements that are allowed ──▶ rule: refusals are added ──▶ response
                  └──▶ the response that refuses everything

A node without an authorizer has no rules: its handlers are called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from moldau.broker.apis.parts import Answering, consume_elements
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.broker.runtime.pending import Pending
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.refusals import refused_elements, refused_with_text
from moldau.security.access import CLUSTER_NAME, Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

Answer = Callable[["RequestContext", object], object]
"""The handler that a rule calls."""
Rule = Callable[["Services", "RequestContext", object, Answer], object]
"""A rule: checks what the client may do, and calls the handler with the allowed part of the request."""
Response = TypeVar("Response")
Element = TypeVar("Element")


class Need(NamedTuple):
    """A permission that a request needs: an operation on a resource."""

    operation: AclOperation
    kind: ResourceKind
    name: str

    def is_met(self, access: Access) -> bool:
        return access.allows(self.operation, self.kind, self.name)

    def is_met_quietly(self, access: Access) -> bool:
        """Whether the client has the permission. A denial is not logged: another permission may allow the request."""
        return access.allows(self.operation, self.kind, self.name, logs_denied=False)


REFUSALS: Final = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a client that lacks a permission on a resource of the kind."""


def on_cluster(operation: AclOperation) -> Need:
    return Need(operation, ResourceKind.CLUSTER, CLUSTER_NAME)


def on_topic(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.TOPIC, name)


def on_group(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.GROUP, name)


def on_transactional_id(operation: AclOperation, name: str) -> Need:
    return Need(operation, ResourceKind.TRANSACTIONAL_ID, name)


def change_response(response: object, change: Callable[[Response], Response]) -> object:
    """Change the response of a handler by `change`; a `Pending` response is changed when it is completed."""
    if not isinstance(response, Pending):
        return change(response)  # type: ignore[arg-type]
    reply: Pending[Response] = Pending(response.abandon, response.waits_for)
    response.listen(lambda response: reply.complete(change(response)))
    return reply


def with_field(request: Response, name: str, value: object) -> Response:
    """Copy a request with one field replaced. The request itself stays unchanged, because hooks compare it."""
    changed = copy(request)
    setattr(changed, name, value)
    return changed


# Rules that ask nothing here


def open_to_all(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule by which no permission is needed."""
    return answer(context, request)


def handler_asks(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule that checks nothing, because the handler itself checks permissions."""
    return answer(context, request)


def controller_asks(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """A rule that checks nothing: the broker forwards the request, and the controller checks the ACLs."""
    return answer(context, request)


# Rules of what a request needs

Of = Callable[[AclOperation, str], Need]
"""Makes the `Need` for a named resource: `on_topic`, `on_group` or `on_transactional_id`."""
NeedOf = Callable[["Services", "RequestContext", Any], "Need | None"]
"""The permission that an element of a request needs; None if it needs no permission."""


def all_of(*rules: Rule) -> Rule:
    """Make a rule that applies several rules in order. Elements that one rule refuses are not passed to the next."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        behind = answer
        for rule in reversed(rules):
            behind = partial(_ask_next, rule, services, behind)
        return behind(context, request)

    return ask


def _ask_next(rule: Rule, services: Services, behind: Answer, context: RequestContext, request: object) -> object:
    return rule(services, context, request, behind)


def needs_cluster(operation: AclOperation) -> Rule:
    """Make a rule: the client needs the operation on the cluster."""
    need = on_cluster(operation)

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        if need.is_met(context.access):
            return answer(context, request)
        return refused_with_text(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return ask


def unless_permitted(operation: AclOperation, rule: Rule) -> Rule:
    """Make a rule: clients with the operation on the cluster may send the request; `rule` decides for other clients."""
    need = on_cluster(operation)

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        if need.is_met_quietly(context.access):
            return answer(context, request)
        return rule(services, context, request, answer)

    return ask


def needs(of: Of, operation: AclOperation, field: str) -> Rule:
    """Make a rule: the client needs the operation on the resource that a field of the request names."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        need = of(operation, getattr(request, field))
        if need.is_met(context.access):
            return answer(context, request)
        return refused_with_text(request, context.version, REFUSALS[need.kind])

    return ask


def needs_each(of: Of, operation: AclOperation, field: str) -> Rule:
    """Make a rule: the client needs the operation on each resource in the list `field`. If one permission is missing,
    the whole request is refused. Long lists are checked in slices, so that other tasks run."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        names = dict.fromkeys(getattr(request, field) or ())

        def answering() -> Answering:
            for name in names:
                yield
                need = of(operation, name)
                if not need.is_met(context.access):
                    return refused_with_text(request, context.version, REFUSALS[need.kind])
            return answer(context, request)

        return services.long_requests.answer(context, answering()) if names else answer(context, request)

    return ask


def each_in(elements: str, of: Of, operation: AclOperation, field: str | None = "name", *, results: str = "") -> Rule:
    """Make a rule: the client needs the operation on the resource of each element in a list. `field` of the element has
    the resource's name; if it is None, the element is the name. `results` is the list in the response, if its name
    differs."""

    def need_of(services: Services, context: RequestContext, element: object) -> Need:
        return of(operation, element if field is None else getattr(element, field))  # type: ignore[arg-type]

    return elements_rule(elements, results or elements, need_of)


def topic_by_id(operation: AclOperation, since: int) -> NeedOf:
    """Make a function that gives the permission for a topic of a request. From version `since` on the request has topic
    ids. An unknown id needs no permission: it gets the usual error, which reveals no topic."""

    def need_of(services: Services, context: RequestContext, element: Any) -> Need | None:
        if context.version < since:
            return on_topic(operation, element.name)
        known = services.cluster.image.topics.by_id.get(element.topic_id)
        return None if known is None else on_topic(operation, known.name)

    return need_of


def elements_rule(elements: str, results: str, need_of: NeedOf) -> Rule:
    """Make a rule: `need_of` gives the permission for each element of a list. The results of refused elements follow
    the others, unless the whole request failed. A permission of several elements is decided and logged once."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        allowed, denied = split_by_need(services, context, getattr(request, elements), need_of)
        if not denied:
            return answer(context, request)
        refusals = refusals_of(context, request, elements, results, denied)
        asked = with_field(request, elements, allowed)
        return change_response(answer(context, asked), partial(_with_refusals, results, refusals))

    return ask


def split_by_need(
    services: Services, context: RequestContext, elements: Iterable[Element], need_of: NeedOf
) -> tuple[list[Element], list[tuple[Element, ErrorCode]]]:
    """Split the elements of a list into those that are allowed, and the refused ones with their errors."""
    allowed, denied = [], []
    met: dict[Need | None, bool] = {None: True}
    for element in elements:
        need = need_of(services, context, element)
        if need not in met:
            assert need is not None
            met[need] = need.is_met(context.access)
        if need is None or met[need]:
            allowed.append(element)
        else:
            denied.append((element, REFUSALS[need.kind]))
    return allowed, denied


def refusals_of(
    context: RequestContext, request: object, elements: str, results: str, denied: Sequence[tuple[object, ErrorCode]]
) -> list[Any]:
    """Make the results of refused elements, in order."""
    refusals: list[Any] = []
    for error, same in groupby(denied, key=itemgetter(1)):
        part = with_field(request, elements, [element for element, _ in same])
        refusals += refused_elements(part, context.version, error, results)
    return refusals


def _with_refusals(results: str, refusals: list[object], response: object) -> object:
    if not getattr(response, "error_code", ErrorCode.NONE):
        getattr(response, results).extend(refusals)
    return response


def visible(results: str, of: Of, operation: AclOperation, field: str) -> Rule:
    """Make a rule: elements of the list `results` in the response are removed if the client may not do the operation on
    their resource. Long lists are filtered in slices."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        access = context.access

        def chosen(whole: object) -> Answering:
            shown = []
            for element in consume_elements(getattr(whole, results)):
                yield
                if of(operation, getattr(element, field)).is_met_quietly(access):
                    shown.append(element)
            setattr(whole, results, shown)
            return whole

        response = answer(context, request)
        if not isinstance(response, Pending):
            return services.long_requests.answer(context, chosen(response))
        reply: Pending[object] = Pending(response.abandon, response.waits_for)

        response.listen(lambda whole: reply.follow(services.long_requests.answer(context, chosen(whole))))
        return reply

    return ask


# What a client may do, as responses tell it

NOT_ASKED: Final = -(1 << 31)


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def permitted_operations(access: Access, operations: int, kind: ResourceKind, name: str) -> int:
    """Which of some operations the client may do on a resource, as a bit field. The decisions are not logged."""
    if access.is_unrestricted:
        return operations
    return _bits(
        *(
            operation
            for operation in AclOperation
            if operations >> operation & 1
            and access.allows(operation, kind, name, logs_allowed=False, logs_denied=False)
        )
    )


def permitted_cluster_operations(access: Access) -> int:
    """The operations that the client may do on the cluster, as a bit field; 0 if it may not describe the cluster."""
    if not access.is_unrestricted and not access.allows(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return 0
    return permitted_operations(access, CLUSTER_OPERATIONS, ResourceKind.CLUSTER, CLUSTER_NAME)


def guarded_handler(
    rule: Rule, role: ListenerRole, services: Services, answer: Answer
) -> Callable[[RequestContext, object], object]:
    """Make the handler of an API that first applies a rule. `role` is that of the listener, BROKER or CONTROLLER."""
    is_for_leader = role is ListenerRole.CONTROLLER

    def handle(context: RequestContext, request: object) -> object:
        if is_for_leader and type(request) in CONTROLLER_APIS and services.quorum.active_controller is None:
            # The metadata of a controller that does not lead may be old: what it knows of ACLs decides nothing.
            return refused_with_text(request, context.version, ErrorCode.NOT_CONTROLLER)
        access = context.access
        begins = access.begin_request()
        try:
            return rule(services, context, request, answer)
        finally:
            if begins and not context.is_long:  # A long answer goes on in slices, and ends the request itself.
                access.end_request()

    return handle
