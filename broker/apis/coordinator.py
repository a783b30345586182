"""Handles requests to coordinators: a handler passes an event to the state machine of a group or of a transactional id.

`submit_event` answers a request, or a part of one, whose key (a group id or a transactional id) belongs to one state
machine. `join_answers` joins the answers to the parts of a request into its response. `hash_then_submit` computes topic
hashes for a heartbeat in slices, because a step of a state machine cannot be interrupted. The functions from
`describe_groups` on describe groups with target assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from moldau.broker.apis.needs import GROUP_OPERATIONS, Answer, Rule, change_response, on_topic, permitted_operations
from moldau.broker.apis.parts import Answering
from moldau.broker.coordinators.heartbeat_hook import HeartbeatHook
from moldau.broker.network.route import RequestContext, Route
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply, call_with_response
from moldau.coordinator.group.description import complete_descriptions
from moldau.coordinator.group.group import RequestOfGroup
from moldau.coordinator.runtime.machine import Waiter
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import response_class_of
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

log = logging.getLogger("moldau.connection")

MEMBER_TOPICS_MAX: Final = 2 * ENTRIES_MAX
"""The most topics that a member may name, because a state machine handles a heartbeat in one uninterrupted step."""
EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
PartT = TypeVar("PartT")


class EventRunner(Protocol[EventT_contra]):
    """The part of a `ShardRunner` that a handler uses."""

    def submit(self, event: EventT_contra) -> None: ...


class ReplyToken:
    """Completes a reply with the response that `response_of` makes of a state machine's answer."""

    def __init__(self, complete: Callable[[ResponseT], None], response_of: Callable[[object], ResponseT]) -> None:
        self._complete: Callable[[object], None] = lambda answer: complete(response_of(answer))

    def complete(self, response: object) -> None:
        self._complete(response)


def submit_event(
    runner: EventRunner[EventT] | ErrorCode,
    version: int,
    event_of: Callable[[Waiter], EventT],
    refuse: Callable[[ErrorCode], ResponseT],
    response_of: Callable[[object], ResponseT] | None = None,
    waits_for: str = COORDINATOR,
) -> Reply[ResponseT]:
    """Submit the event of a request to the runner of its state machine. If `runner` is an error, because the state
    machine is not on this broker, the request is refused with it. `response_of` makes the response of the state
    machine's answer; if it is None, the answer is the response."""
    if isinstance(runner, ErrorCode):
        return refuse(runner)
    reply: Pending[ResponseT] = Pending(waits_for=waits_for)
    token = reply if response_of is None else ReplyToken(reply.complete, partial(_made, response_of, refuse))
    runner.submit(event_of(Waiter(token, version)))
    return reply


def _made(
    response_of: Callable[[object], ResponseT], refuse: Callable[[ErrorCode], ResponseT], answer: object
) -> ResponseT:
    """Make a response by `response_of`. If it fails, only this request is refused: the state machine has answers for
    others, too."""
    try:
        return response_of(answer)
    except Exception:
        log.exception("an answer of a coordinator does not become a response")
        return refuse(ErrorCode.UNKNOWN_SERVER_ERROR)


def join_answers(
    answers: Sequence[Reply[PartT]], response_of: Callable[[list[PartT]], ResponseT]
) -> Pending[ResponseT]:
    """Make one reply for several parts of a request. `response_of` gets their answers, in order, when all are known."""
    reply: Pending[ResponseT] = Pending(waits_for=COORDINATOR)
    parts: dict[int, PartT] = {}

    def answered(place: int, part: PartT) -> None:
        parts[place] = part
        if len(parts) == len(answers):
            reply.complete(response_of([parts[each] for each in range(len(answers))]))

    if not answers:
        reply.complete(response_of([]))
    for place, answer in enumerate(answers):
        call_with_response(answer, partial(answered, place))
    return reply


def submit_heartbeat(
    services: Services, context: RequestContext, topics: Sequence[str] | None, submitted: Callable[[], object]
) -> object:
    """Submit a member's heartbeat and return its answer. The hashes of subscribed topics are computed first."""
    return (
        services.long_requests.answer(context, hash_then_submit(services, topics, submitted)) if topics else submitted()
    )


def hash_then_submit(services: Services, topics: Iterable[str], submitted: Callable[[], object]) -> Answering:
    """Compute the hashes of the topics that a member subscribes to, in slices, then submit its heartbeat. The state
    machine of the group needs the hashes."""
    for name in dict.fromkeys(topics):
        services.groups.look_at_topic(name)
        yield
    return submitted()


def heartbeat_hook(
    event_of: Callable[[Waiter, RequestContext, Any], RequestOfGroup], feature: str | None = None
) -> Callable[[Services, Route], HeartbeatHook]:
    """Make a function that makes the heartbeat hook of a connection. `event_of` makes the event of a heartbeat. The
    hook does not answer if the audit log needs a line for each request, or if the group protocol `feature` is off."""

    def hook(services: Services, route: Route) -> HeartbeatHook:
        logs_all = services.has_authorizer and services.config.flag("moldau.audit.log.allowed")

        def repeated(context: RequestContext, request: object) -> RequestOfGroup | None:
            if logs_all or (feature and not services.groups.serves(feature, services.cluster.image.features.levels)):
                return None
            return event_of(Waiter(None, context.version), context, request)

        return HeartbeatHook(route, services.groups, services.environment, repeated)

    return hook


# Descriptions of groups


def describe_groups(
    services: Services,
    context: RequestContext,
    request: Any,
    feature: str,
    event_of: Callable[[Waiter, str], RequestOfGroup],
    not_described: Callable[[str, ErrorCode], Any],
    refuse: Callable[[str, ErrorCode], Any] | None = None,
) -> Pending[Any]:
    """Describe each group of a request by its state machine, if the feature is on. The reply waits until earlier writes
    of the groups are committed. The descriptions are made in slices. `refuse` makes the description of a group whose
    state machine is not on this broker; if it is None, `not_described` does."""
    is_on = services.groups.serves(feature, services.cluster.image.features.levels)

    def describe(group_id: str) -> Reply[Any]:
        if not is_on or not group_id:
            return not_described(group_id, ErrorCode.INVALID_GROUP_ID if is_on else ErrorCode.UNSUPPORTED_VERSION)
        return submit_event(
            services.groups.runner_of(group_id),
            context.version,
            lambda waiter: event_of(waiter, group_id),
            partial(refuse or not_described, group_id),
        )

    def answering(parts: list[Any]) -> Answering:
        groups = yield from complete_descriptions(parts)
        if request.include_authorized_operations:
            add_authorized_operations(context.access, groups)
        response: Any = response_class_of(type(request))
        return response(groups=groups)

    reply: Pending[Any] = Pending(waits_for=COORDINATOR)
    described: Pending[list[Any]] = join_answers([describe(group_id) for group_id in request.group_ids], list)
    described.listen(lambda parts: reply.follow(services.long_requests.answer(context, answering(parts))))
    return reply


def add_authorized_operations(access: Access, described: Iterable[Any]) -> None:
    """Set the operations that the client may do on the group, in each description without an error."""
    for group in described:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = permitted_operations(
                access, GROUP_OPERATIONS, ResourceKind.GROUP, group.group_id
            )


def without_hidden_topics(
    topics_of: Callable[[Any], Iterable[str]], not_described: Callable[[str, ErrorCode, str], object], message: str
) -> Rule:
    """Make a rule: the description of a group with a topic that the client may not describe is replaced by an error."""

    def ask(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
        may_see = cache(lambda name: on_topic(AclOperation.DESCRIBE, name).is_met_quietly(context.access))

        def hide(response: Any) -> object:
            response.groups = [
                each
                if all(map(may_see, dict.fromkeys(topics_of(each))))
                else not_described(each.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
                for each in response.groups
            ]
            return response

        return change_response(answer(context, request), hide)

    return ask
