"""The simulated network: requests and answers are delayed, lost, doubled; nodes are cut off, also one way only."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.kraft.raft.events import (
    Destination,
    IncomingResponse,
    OutgoingRequest,
    RequestReceived,
    ResponseReceived,
    Send,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.schema import spec_of

if TYPE_CHECKING:
    from tests.simulation.raft.host import Host
    from tests.simulation.raft.world import World


SENT_KEPT = 50


class Call(NamedTuple):
    """`incarnation`: of who asked."""

    number: int
    asker: Host
    incarnation: int
    to: Destination
    request: OutgoingRequest
    answerer_id: int


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        self.delay_ms = 2
        self.loss = 0.0
        self.doubling = 0.0
        self.cuts: set[tuple[int, int]] = set()
        """(from, to): nothing passes."""
        self._open: dict[int, Call] = {}
        self._sent: dict[type[OutgoingRequest], deque[Call]] = {}
        self.has_pre_vote = True

    def send(self, asker: Host, effect: Send) -> None:
        world = self._world
        world.invariants.asks(asker, effect.request)
        call = Call(world.unique(), asker, asker.incarnation, effect.to, effect.request, int(effect.to.host))
        self._open[call.number] = call
        self._sent.setdefault(type(call.request), deque(maxlen=SENT_KEPT)).append(call)
        answerer = world.hosts[call.answerer_id]
        if not answerer.is_up and self._passes(asker.node_id, call.answerer_id):
            world.after(self._delay(), asker, lambda: self._end(call, None, is_refused=True))
            return
        world.after(effect.timeout_ms, asker, lambda: self._end(call, None))
        if self._passes(asker.node_id, call.answerer_id):
            world.after(self._delay(), None, lambda: self._arrive(call))
            if world.random.random() < self.doubling:
                world.after(self._delay() * 20, None, lambda: self._arrive(call))

    def echo(self, count: int) -> None:
        """Copies of earlier messages arrive, of a connection whose responses are no longer read."""
        seeded = self._world.random
        for sent in seeded.choices(list(self._sent.values()), k=count) if self._sent else ():
            self._world.after(self._delay(), None, partial(self._arrive, seeded.choice(sent)))

    def stray(self, asker: Host, answerer: Host, request: OutgoingRequest) -> None:
        """A request whose response no node waits for."""
        self._arrive(Call(-1, asker, -1, Destination(answerer.node_id, "", 0), request, answerer.node_id))

    def reset(self, answerer: Host) -> None:
        """It died: the peers that wait for it learn that, if messages get through."""
        for call in list(self._open.values()):
            if call.answerer_id == answerer.node_id and self._passes(answerer.node_id, call.asker.node_id):
                end = partial(self._end, call, None, is_refused=True)
                self._world.after(self._delay(), call.asker, end)

    def reply(self, token: object, response: IncomingResponse) -> None:
        call = token
        if not isinstance(call, Call):
            self._world.admin_answered(token, response)
            return
        self._world.invariants.answers(self._world.hosts[call.answerer_id], call.request, response)
        if self._passes(call.answerer_id, call.asker.node_id):
            self._world.after(self._delay(), None, lambda: self._end(call, response))

    def _arrive(self, call: Call) -> None:
        answerer = self._world.hosts[call.answerer_id]
        if isinstance(call.request, ApiVersionsRequest):
            if answerer.is_up:
                self.reply(call, answerer.api_versions())
            return
        version = spec_of(type(call.request)).versions.last
        answerer.feed(RequestReceived(call, call.request, version, "CONTROLLER"))

    def _end(self, call: Call, response: IncomingResponse | None, *, is_refused: bool = False) -> None:
        if self._open.pop(call.number, None) is not None and call.asker.incarnation == call.incarnation:
            call.asker.feed(ResponseReceived(call.to, call.request, response, is_refused))

    def _passes(self, from_id: int, to_id: int) -> bool:
        return (from_id, to_id) not in self.cuts and self._world.random.random() >= self.loss

    def _delay(self) -> int:
        return self._world.random.randint(0, self.delay_ms)


def told(request: OutgoingRequest) -> str:
    """A request as one line of a trace."""
    match request:
        case VoteRequest():
            (asked,) = request.topics[0].partitions
            kind = "pre-vote" if asked.pre_vote else "vote"
            return f"{kind} in {asked.replica_epoch}, log {asked.last_offset}@{asked.last_offset_epoch}"
        case FetchRequest():
            (part,) = request.topics[0].partitions
            return f"fetch {part.fetch_offset}@{part.last_fetched_epoch} in {part.current_leader_epoch}"
    return type(request).__name__
