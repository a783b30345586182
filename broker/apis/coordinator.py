"""The generic handler of coordinators' APIs: the runner of a key steps its machine with the event of a request.

`submit_event` answers a request, or a part of it, whose key (a group id or a transactional id) has one machine.
`join_answers` makes one response of the answers to several parts. `after_hashes` does first, and may do in slices, what
would take the time of a machine. `describe_groups` and the functions after it describe groups of a kind with a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from moldau.broker.apis.needs import GROUP_OPERATIONS, Answer, Rule, change_response, on_topic, permitted
from moldau.broker.apis.parts import Answering
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import COORDINATOR, Pending, Reply, when_ready
from moldau.coordinator.group.description import in_pieces
from moldau.coordinator.group.group import AboutGroup
from moldau.coordinator.runtime.machine import Waiter
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import response_class_of
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services

MEMBER_TOPICS_MAX: Final = 2 * ENTRIES_MAX
"""The most topics that a member of a group may name: its heartbeat is one step."""
EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
ResponseT = TypeVar("ResponseT")
PartT = TypeVar("PartT")


class EventRunner(Protocol[EventT_contra]):
    """What a handler uses of a `ShardRunner`."""

    def submit(self, event: EventT_contra) -> None: ...


class ReplyToken:
    """The token of a request whose response is made of the machine's answer."""

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
    """Submit the event of a request to the runner of its key, or refuse the request if the machine is not here.

    `response_of` makes the response of the machine's answer; None: the answer is the response.
    """
    if isinstance(runner, ErrorCode):
        return refuse(runner)
    reply: Pending[ResponseT] = Pending(waits_for=waits_for)
    runner.submit(event_of(Waiter(reply if response_of is None else ReplyToken(reply.complete, response_of), version)))
    return reply


def join_answers(
    answers: Sequence[Reply[PartT]], response_of: Callable[[list[PartT]], ResponseT]
) -> Pending[ResponseT]:
    """One response for the parts of a request, in their order, once all of them are answered."""
    reply: Pending[ResponseT] = Pending(waits_for=COORDINATOR)
    parts: dict[int, PartT] = {}

    def answered(place: int, part: PartT) -> None:
        parts[place] = part
        if len(parts) == len(answers):
            reply.complete(response_of([parts[each] for each in range(len(answers))]))

    if not answers:
        reply.complete(response_of([]))
    for place, answer in enumerate(answers):
        when_ready(answer, partial(answered, place))
    return reply


def subscribed(
    services: Services, context: RequestContext, topics: Sequence[str] | None, submitted: Callable[[], object]
) -> object:
    """`after_hashes` as the answer to a heartbeat."""
    return services.long_requests.answer(context, after_hashes(services, topics, submitted)) if topics else submitted()


def after_hashes(services: Services, topics: Iterable[str], submitted: Callable[[], object]) -> Answering:
    """Submit the heartbeat of a member that subscribes to these topics. Their hashes, which the machine of the group
    needs, are computed before.
    """
    for name in dict.fromkeys(topics):
        services.groups.look_at_topic(name)
        yield
    return submitted()


# Descriptions of groups


def describe_groups(
    services: Services,
    context: RequestContext,
    request: Any,
    feature: str,
    event_of: Callable[[Waiter, str], AboutGroup],
    not_described: Callable[[str, ErrorCode], Any],
    refuse: Callable[[str, ErrorCode], Any] | None = None,
) -> Pending[Any]:
    """Describe each group of a request by its machine, if the feature is on. The reply waits for the writes before it,
    and the descriptions are made in slices.
    `refuse`: the description if the machine is not here, if that is another one.
    """
    is_on = services.cluster.image.features.levels.get(feature, 0) > 0

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
        groups = yield from in_pieces(parts)
        if request.include_authorized_operations:
            add_operations(context.access, groups)
        response: Any = response_class_of(type(request))
        return response(groups=groups)

    reply: Pending[Any] = Pending(waits_for=COORDINATOR)
    described: Pending[list[Any]] = join_answers([describe(group_id) for group_id in request.group_ids], list)
    described.listen(lambda parts: reply.follow(services.long_requests.answer(context, answering(parts))))
    return reply


def add_operations(access: Access, described: Iterable[Any]) -> None:
    """Add to descriptions of groups what the client may do to each."""
    for group in described:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = permitted(access, GROUP_OPERATIONS, ResourceKind.GROUP, group.group_id)


def without_hidden_topics(
    topics_of: Callable[[Any], Iterable[str]], not_described: Callable[[str, ErrorCode, str], object], message: str
) -> Rule:
    """A group with a topic that the client may not describe is refused as a whole."""

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
