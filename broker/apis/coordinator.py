"""The generic handler of coordinators' APIs: the runner of a key steps its machine with the event of a request.

`submit_event` answers a request, or a part of it, whose key (a group id or a transactional id) has one machine.
`join_answers` makes one response of the answers to several parts. `after_hashes` does first, and may do in slices, what
would take the time of a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from moldau.broker.apis.parts import Answering
from moldau.broker.runtime.pending import COORDINATOR, Pending, when_ready
from moldau.coordinator.runtime.machine import Waiter
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.errors import ErrorCode

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
) -> ResponseT | Pending[ResponseT]:
    """Submit the event of a request to the runner of its key, or refuse the request if the machine is not here.

    `response_of` makes the response of the machine's answer; None: the answer is the response.
    """
    if isinstance(runner, ErrorCode):
        return refuse(runner)
    reply: Pending[ResponseT] = Pending(waits_for=waits_for)
    runner.submit(event_of(Waiter(reply if response_of is None else ReplyToken(reply.complete, response_of), version)))
    return reply


def join_answers(
    answers: Sequence[PartT | Pending[PartT]], response_of: Callable[[list[PartT]], ResponseT]
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


def after_hashes(services: Services, topics: Iterable[str], submitted: Callable[[], object]) -> Answering:
    """Submit the heartbeat of a member that subscribes to these topics. Their hashes, which the machine of the group
    needs, are computed before.
    """
    for name in dict.fromkeys(topics):
        services.groups.look_at_topic(name)
        yield
    return submitted()
