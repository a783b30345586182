"""Handles long requests in parts: a request with long lists is cut, and each part is handled like a request.

    request ──▶ parts of at most `size` elements ──▶ rule and handler, for each part ──▶ their responses, joined
                 the first ones at once, the others in later iterations of the loop

The connection handles its next request after the last part, so its requests keep their order. Between parts the event
loop serves other clients, heartbeats and timers: in one iteration only one of the node's long requests has a slice of
`SLICE_NS`.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import islice
from typing import Final, TypeVar, cast

from moldau.broker.apis.list_lengths import LengthGuard, elements_in, lists_exceed
from moldau.broker.network.memory import RequestMemory
from moldau.broker.network.route import Handler, RequestContext
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import Pending
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.schema import fields_of

T = TypeVar("T")
SIZE: Final = 32
"""The default of the maximum number of elements in a part. A handler takes about a millisecond for them."""
LIGHT_SIZE: Final = 128
"""The most elements of a part if the handler only looks each element up in a dictionary."""
RECORDS_SIZE: Final = 256
"""The most elements of a part if each has a batch of its own, as in Produce."""
OFFSETS_SIZE: Final = 64
"""The most elements of a part if the group coordinator writes a record for each, all of them in one batch."""
OPEN_MAX: Final = 8
"""The most parts of one request that wait for the controller, so that it can answer other requests in between."""
SLICE_NS: Final = 2_000_000
"""The length (ns) of a slice, after which other tasks of the event loop run."""
SLICE_PARTS_MAX: Final = 16
"""The most parts in a slice. It also ends a slice under a simulated clock, which does not advance meanwhile."""
FREED_PARTS_MAX: Final = 256
"""The most parts that are dropped in a slice."""
JOINED_AT_ONCE: Final = 256
"""The most responses of parts that are joined, or keys that are freed, without letting other tasks run."""
ANSWERED_AT_ONCE: Final = 128
"""The most elements of an answer that is made without slices."""
STEP: Final = 32
"""The number of elements of an answer after which the clock is read."""
ANSWER_SLICE_NS: Final = 500_000
"""The length (ns) of a slice of an answer. It is short, because the elements stay in memory, and a garbage collection
may follow."""
SORTED_AT_ONCE: Final = 64
"""The most names that are sorted without letting other tasks run."""
Answering = Generator[None, None, object]
"""A generator that makes and returns a response. It yields after each element, so that other tasks may run."""


class ListPath(NamedTuple):
    """A list of a request that is cut into parts, and the list of the response that has the results of its elements.

    Each is a path of field names, and the elements of the innermost lists are counted. With `topics.partitions`, a list
    of topics is cut, and also the partitions of a topic that has more of them than a part may have."""

    request: str
    response: str


@dataclass(frozen=True, slots=True)
class PartRules:
    """The rules by which the requests of an API are cut into parts."""

    lists: tuple[ListPath, ...]
    size: int = SIZE
    long_from: int = 0
    """The number of elements above which a request is cut; 0 if that is `size`."""
    open_max: int = 0
    """The most parts that wait for their responses at the same time; 0 for no limit."""
    is_distinct: bool = False
    """Whether an element that repeats an earlier one is left out, because its result may be large.

    DIVERGES: Apache Kafka repeats it."""
    refuses: Callable[[object], Handler | None] | None = None
    """Gives the handler that refuses the parts of a request with too many elements; None for a request that is not
    refused."""
    is_exempt: Callable[[RequestContext, object], bool] | None = None
    """Whether a request is handled whole, although it is long."""
    copies: Callable[[object], int] | None = None
    """Copies what a request has from the receive buffer of its connection, which is used again before the later parts
    are handled. Returns the size (bytes). None if requests of the API have nothing from it."""

    def is_long(self, request: object) -> bool:
        """Whether a request has so many elements that it is cut."""
        return lists_exceed(request, self.names, max(self.size, self.long_from))

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The field names of each list's path."""
        return tuple(tuple(each.request.split(".")) for each in self.lists)

    def parts_of(self, request: object) -> Generator[RequestPart | RestartAfter | None, object, None]:
        """Yield the parts of a request, and None each time that the next part takes long to find. The lists of the
        request are consumed.

        The caller sends the response to each part into the generator, or a `Pending` of it if `open_max` is not 1."""
        names = [each.request.partition(".")[0] for each in self.lists]
        for each in self.lists:
            path = each.request.split(".")
            elements = getattr(request, path[0])
            if not elements:
                continue
            rest, seen = consume_elements(elements), set[object]()
            for piece in pieces(distinct(rest, seen) if self.is_distinct else rest, path[1:], self.size):
                part = copy(request)
                for name in names:
                    if getattr(request, name) is not None:
                        setattr(part, name, [])
                setattr(part, path[0], piece.elements)
                yield RequestPart(part, each, piece.continues)
            while seen:
                for _ in range(min(len(seen), JOINED_AT_ONCE)):
                    seen.pop()
                yield None


def in_parts(
    request: str,
    response: str | None = None,
    *,
    size: int = SIZE,
    open_max: int = 0,
    is_distinct: bool = False,
    refuses: Callable[[object], Handler | None] | None = None,
    copies: Callable[[object], int] | None = None,
) -> PartRules:
    """Declare that a list is cut into parts. `response` is the path of its results, if it differs from `request`."""
    return PartRules(
        (ListPath(request, response or request),),
        size,
        open_max=open_max,
        is_distinct=is_distinct,
        refuses=refuses,
        copies=copies,
    )


class RequestPart(NamedTuple):
    """One part of a long request."""

    request: object
    path: ListPath
    continues: bool
    """Whether the part continues the last element of the previous part, and has no other element."""


class RestartAfter(NamedTuple):
    """A wait (ms), after which the parts begin again from the first one. The responses before it are dropped."""

    wait_ms: int


class ListPiece(NamedTuple):
    """Consecutive elements of a list, or a piece of one element that has too many inner elements for one part."""

    elements: list[object]
    continues: bool


def pieces(
    elements: Iterable[object], inner: Sequence[str], size: int, *, consumes: bool = True
) -> Iterator[ListPiece]:
    """Cut a list into pieces of at most `size` elements, counted at the innermost path `inner`. `consumes`: whether the
    inner lists of an element that is cut are consumed."""
    piece: list[object] = []
    left = size
    for element in elements:
        need = elements_in(element, inner, 0, size)
        if need > left and piece:
            yield ListPiece(piece, continues=False)
            piece, left = [], size
        if need <= left:
            piece.append(element)
            left -= need
            continue
        is_first = True
        inside = getattr(element, inner[0])
        for below in pieces(consume_elements(inside) if consumes else inside, inner[1:], size, consumes=consumes):
            part = copy(element)
            setattr(part, inner[0], below.elements)
            yield ListPiece([part], continues=not is_first)
            is_first = False
    if piece:
        yield ListPiece(piece, continues=False)


def sorted_in_slices(names: Iterable[str], first: str = "") -> Generator[None, object, Iterator[str]]:
    """Sort the names that are not before `first`. Yields between slices; returns an iterator over the result."""
    runs: list[list[str]] = []
    left = iter(names)
    while run := [*islice(left, SORTED_AT_ONCE)]:
        runs.append(sorted(name for name in run if name >= first))
        yield
    return heapq.merge(*runs)


def consume_elements(elements: list[T]) -> Iterator[T]:
    """Iterate over a list, and remove each element from it, because freeing all elements at once would take long."""
    elements.reverse()
    while elements:
        yield elements.pop()


def distinct(elements: Iterable[object], seen: set[object]) -> Iterator[object]:
    """Yield elements, which are texts or structs, without repetitions. Lists in structs are not compared. `seen` has
    earlier elements."""
    for element in elements:
        key: object = element
        if not isinstance(element, str):
            key = tuple(getattr(element, field.name) for field in fields_of(type(element)) if not field.is_array)
        if key not in seen:
            seen.add(key)
            yield element


class JoinedResponse:
    """The response to a long request, joined from the responses to its parts."""

    def __init__(self, plan: PartRules) -> None:
        self._plan = plan
        self.response: object | None = None

    def add(self, part: RequestPart, response: object) -> bool:
        """Append the response to a part. Returns False if it refuses the whole request and replaces the others."""
        whole = self.response
        if whole is None:
            self.response = response
            return True
        if getattr(response, "error_code", 0):
            self.response = response
            return False
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > getattr(whole, "throttle_time_ms", 0):
            whole.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        path = part.path.response.split(".")
        append_results(whole, response, path, continues=part.continues)
        if hasattr(whole, "node_endpoints"):
            known = {each.node_id for each in whole.node_endpoints}
            whole.node_endpoints += [each for each in response.node_endpoints if each.node_id not in known]  # type: ignore[attr-defined]
        return True


def append_results(whole: object, more: object, path: Sequence[str], *, continues: bool) -> None:
    """Append the results of a part to those of earlier parts. With `continues`, the first new result is merged with the
    last earlier one if both are about the same element."""
    name, inner = path[0], path[1:]
    added = cast("list[object] | None", getattr(more, name))
    results = cast("list[object] | None", getattr(whole, name))
    if not results or not added:
        if added:
            setattr(whole, name, added)
        return
    if inner and continues and _is_same(results[-1], added[0]):
        append_results(results[-1], added[0], inner, continues=True)
        results.extend(added[1:])
    else:
        results.extend(added)


def _is_same(one: object, other: object) -> bool:
    """Whether two results are about the same element: only their lists differ."""
    return all(
        getattr(one, field.name) == getattr(other, field.name) for field in fields_of(type(one)) if not field.is_array
    )


def is_last_refused(response: object, path: ListPath) -> bool:
    """Whether the last element of a response is refused as a whole, without results for its inner elements."""
    name, _, inner = path.response.partition(".")
    elements = getattr(response, name, None)
    if not inner or not elements:
        return False
    return bool(getattr(elements[-1], "error_code", 0)) and not getattr(elements[-1], inner.partition(".")[0])


class LongRequests:
    """Schedules the long requests of a node: they get slices of the event loop one after the other."""

    def __init__(
        self, environment: Environment, loop: asyncio.AbstractEventLoop, spawn: Spawn, memory: RequestMemory
    ) -> None:
        self._loop = loop
        self._spawn = spawn
        self.memory = memory
        self.clock_ns = environment.precise_ns
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.handled_count = 0

    def begin(self, work: Coroutine[object, object, None]) -> None:
        self.handled_count += 1
        self._spawn(work, "a long request")

    def answer(self, context: RequestContext, answering: Answering) -> object:
        """Run a generator that makes a response. Returns the response, or a `Pending` of it if the answer is long.

        After `ANSWERED_AT_ONCE` elements the generator continues in slices, between which other tasks of the event loop
        run. Then an executor thread encodes the response, and the connection handles its next request. The decisions of
        all slices go to the audit log together."""
        begins, is_answered = context.access.begin_request(), True
        try:
            for _ in range(ANSWERED_AT_ONCE):
                next(answering)
            is_answered = False
        except StopIteration as done:
            return done.value
        finally:
            if begins and is_answered:
                context.access.end_request()
        context.is_long = True
        context.connection.hold()
        reply: Pending[object] = Pending(answering.close)
        self.begin(context.connection.hold_during(self._further_elements(context, answering, reply, begins)))
        return reply

    async def _further_elements(
        self, context: RequestContext, answering: Answering, reply: Pending[object], begins: bool
    ) -> None:
        # The rule of the API leaves the end of a long request to this one, a request that is handled in parts does not.
        ends = context.access.begin_request() or begins or not context.is_part
        try:
            while True:
                await self.wait_for_turn()
                end_ns = self.clock_ns() + ANSWER_SLICE_NS
                for _ in range(SLICE_PARTS_MAX):
                    for _ in range(STEP):
                        next(answering)
                    if self.clock_ns() >= end_ns:
                        break
        except StopIteration as done:
            if done.value is not None:  # None: the client is gone, and the generator is closed
                reply.follow(done.value)
        finally:
            if ends:
                context.access.end_request()

    async def wait_for_turn(self) -> None:
        """Wait until all other waiting long requests have had a slice, and other callbacks of the event loop have
        run."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)
        await future

    def _next(self) -> None:
        future = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._next)
        if not future.done():
            future.set_result(None)


class LongRequest:
    """One request that is handled in parts."""

    def __init__(
        self, plan: PartRules, turns: LongRequests, context: RequestContext, request: object, answer: Handler
    ) -> None:
        self._plan = plan
        self._turns = turns
        self._context = context
        # What was decoded in an executor thread is a copy already.
        copies = None if context.is_decoded_aside else plan.copies
        self._copied_size = 0 if copies is None else copies(request)
        self._answer = (plan.refuses(request) if plan.refuses is not None else None) or answer
        self._parts = plan.parts_of(request)
        self._answered: list[tuple[RequestPart, object]] = []
        """The parts, each with its response or a `Pending` of it."""
        self._unanswered = 0
        self._are_all_begun = False
        self._joined = JoinedResponse(plan)
        self._reply: Pending[object] = Pending(self._abandon)
        self._is_abandoned = False
        self._pause_ms = 0
        self._is_refused = False
        """Whether a part was refused as a whole."""
        self._is_element_refused = False
        """Whether the last part's element was refused as a whole, so that its further pieces are not handled."""
        self._room: asyncio.Future[None] | None = None
        """A future that is done when the controller has answered a part."""
        self._expects_response = getattr(request, "acks", 1) != 0

    def begin(self) -> object:
        """Handle the first parts. Returns the response or a `Pending` of it; None if the client expects no response."""
        context = self._context
        context.is_part = True
        begins = context.access.begin_request()
        try:
            self._slice()
        finally:
            if begins and (self._are_all_begun or self._is_refused or sys.exception() is not None):
                context.access.end_request()
        if self._is_refused:
            context.connection.hold()
            self._turns.begin(context.connection.hold_during(self._free_parts()))
            return self._refusal() if self._expects_response else None
        if not self._are_all_begun:
            context.is_long = True
            context.connection.hold()
            self._turns.begin(context.connection.hold_during(self._further_slices(begins)))
        elif not self._unanswered and len(self._answered) <= JOINED_AT_ONCE:
            self._join()
            return self._joined.response if self._expects_response else None
        else:
            self._end()
        return self._reply if self._expects_response else None

    def _slice(self) -> None:
        """Handle parts until the time of a slice is over."""
        clock_ns = self._turns.clock_ns
        end_ns = clock_ns() + SLICE_NS
        for _ in range(SLICE_PARTS_MAX):
            if self._is_full:
                return
            try:
                part = self._parts.send(self._answered[-1][1] if self._answered else None)
            except StopIteration:
                self._are_all_begun = True
                return
            if self._is_abandoned:
                self._are_all_begun = True
                return
            if isinstance(part, RestartAfter):
                self._pause_ms = part.wait_ms
                self._answered = []
                return
            if part is not None and not (part.continues and self._is_element_refused):
                self._handle(part)
                if self._is_refused:
                    return
            if clock_ns() >= end_ns:
                return

    def _handle(self, part: RequestPart) -> None:
        response = self._answer(self._context, part.request)
        place = len(self._answered)
        self._answered.append((part, response))
        if type(response) is Pending:
            self._unanswered += 1
            cast("Pending[object]", response).listen(partial(self._complete, place))
        elif getattr(response, "error_code", 0) and not self._unanswered:
            # The error of the whole request is that of all of its parts: the others need not be asked.
            self._is_refused = True
        else:
            self._is_element_refused = is_last_refused(response, part.path)

    @property
    def _is_full(self) -> bool:
        return 0 < self._plan.open_max <= self._unanswered

    def _complete(self, place: int, response: object) -> None:
        self._answered[place] = self._answered[place][0], response
        self._unanswered -= 1
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._are_all_begun:
            self._end()

    def _refusal(self) -> object:
        """Return the last response, which refuses the whole request, and drop the others."""
        ((_, response),) = self._answered[-1:]
        self._answered = []
        return response

    async def _free_parts(self) -> None:
        """Drop the parts that will not be handled, in slices, because freeing all elements at once would take long."""
        if self._plan.open_max:
            self._parts.close()  # Its parts follow from the responses.
        clock_ns = self._turns.clock_ns
        is_over = False
        while not is_over:
            await self._turns.wait_for_turn()
            end_ns = clock_ns() + SLICE_NS
            for _ in range(FREED_PARTS_MAX):
                is_over = next(self._parts, self) is self
                if is_over or clock_ns() >= end_ns:
                    break

    async def _further_slices(self, begins: bool) -> None:
        self._turns.memory.keep(self._copied_size)
        try:
            while not self._are_all_begun and not self._is_refused:
                if self._is_full:
                    self._room = asyncio.get_running_loop().create_future()
                    await self._room
                pause_ms, self._pause_ms = self._pause_ms, 0
                if pause_ms:
                    await asyncio.sleep(pause_ms / 1000)
                await self._turns.wait_for_turn()
                self._slice()
        finally:
            self._turns.memory.give_back(self._copied_size)
            if begins:
                self._context.access.end_request()
        if self._is_refused:
            if not self._is_abandoned and self._expects_response:
                self._reply.complete(self._refusal())
            await self._free_parts()
            return
        self._end()

    def _end(self) -> None:
        """Join the responses, and complete the reply, if all parts are answered."""
        if self._unanswered or self._is_abandoned or not self._expects_response:
            return
        if len(self._answered) <= JOINED_AT_ONCE:
            self._join()
            self._reply.complete(self._joined.response)
        else:
            self._turns.begin(self._join_later())

    def _join(self, count_max: int = JOINED_AT_ONCE) -> None:
        """Join the responses of the next `count_max` parts, but stop after one that refuses the whole request."""
        for part, response in self._answered[:count_max]:
            if not self._joined.add(part, response):
                self._answered = []
                break
        del self._answered[:count_max]

    async def _join_later(self) -> None:
        self._context.is_long = True
        while self._answered and not self._is_abandoned:
            self._join()
            await self._turns.wait_for_turn()
        if not self._is_abandoned:
            self._reply.complete(self._joined.response)

    def _abandon(self) -> None:
        """Stop handling parts, because the client has disconnected."""
        self._is_abandoned = True
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        for _, response in self._answered:
            if type(response) is Pending:
                cast("Pending[object]", response).abandon()


def handler_in_parts(plan: PartRules, turns: Callable[[], LongRequests], answer: Handler) -> Handler:
    """Make a handler that handles long requests in parts. `turns` gives the scheduler of the node's long requests."""

    def answer_long(context: RequestContext, request: object) -> object:
        if plan.is_exempt is not None and plan.is_exempt(context, request):
            return answer(context, request)
        return LongRequest(plan, turns(), context, request, answer).begin()

    return LengthGuard(plan.names, max(plan.size, plan.long_from), answer, answer_long).handle
