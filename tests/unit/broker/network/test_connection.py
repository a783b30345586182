"""Frames in, replies out: cut, glued, pipelined, refused."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.catalogue import LINES, route
from moldau.broker.network.connection import (
    ITERATION_REQUESTS_MAX,
    UNSENT_SIZE_MAX,
    Connection,
)
from moldau.broker.network.connection_resources import ClosingLog, ConnectionListener, ConnectionResources, Transcoder
from moldau.broker.network.listener_security import plain_security
from moldau.broker.network.memory import SMALL_SIZE, ReplyMemory, RequestMemory
from moldau.broker.network.replies import WAITING_REPLIES_MAX, WAITING_SIZE_MAX
from moldau.broker.network.route import ListenerRole, RequestContext, Route, RouteBinding
from moldau.broker.network.turns import BUDGET_NS, ConnectionRank, TurnScheduler
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import Pending
from moldau.protocol.compiler import decode, encode
from moldau.protocol.frames import request_head, size_prefixed
from moldau.protocol.messages.api_versions import ApiVersionsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.purgatories import purgatory_of
from tests.support.request_clocks import request_clock

HEARTBEAT = 12
API_VERSIONS = 18


class Transport:
    """Keeps what is written; says when reading stops."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.is_aborted = False

    def get_extra_info(self, name: str) -> object:
        return ("192.0.2.1", 50000) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.written += b"".join(pieces)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def replies(self) -> list[bytes]:
        """The frames written so far, without their sizes."""
        frames, rest = [], bytes(self.written)
        while rest:
            (size,) = struct.unpack_from(">i", rest)
            frames.append(rest[4 : 4 + size])
            rest = rest[4 + size :]
        return frames

    def correlation_ids(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.replies()]


Handler = Callable[[HeartbeatRequest], "HeartbeatResponse | Pending[HeartbeatResponse] | None"]


class Wire:
    """A connection under test: a listener of two APIs, a transport, a loop that runs when told."""

    def __init__(
        self,
        handler: Handler,
        *,
        buffer_size: int = 1 << 16,
        request_size_max: int = 1 << 20,
        memory: RequestMemory | None = None,
    ) -> None:
        self.scheduled: list[Callable[[], None]] = []
        loop = SimpleNamespace(call_soon=self.scheduled.append, time=lambda: 0.0)
        heartbeats = Route(
            HEARTBEAT,
            "Heartbeat",
            0,
            4,
            lambda: RouteBinding(
                HeartbeatRequest, HeartbeatResponse, lambda _, request: handler(cast("HeartbeatRequest", request))
            ),
        )
        heartbeats.load(0)
        api_versions = route(LINES["ApiVersions"], ListenerRole.BROKER, cast("Any", None))
        listener = SimpleNamespace(
            request_size_max=request_size_max,
            routes={HEARTBEAT: heartbeats, API_VERSIONS: api_versions},
            is_for_nodes=False,
            resources=ConnectionResources(
                cast("asyncio.AbstractEventLoop", loop),
                cast("Environment", None),
                lambda work, name="": None,
                memoryview(bytearray(buffer_size)),
                memory or RequestMemory(None, cast("asyncio.AbstractEventLoop", loop)),
                ReplyMemory(-1, cast("asyncio.AbstractEventLoop", loop)),
                purgatory_of(loop),
                clock := request_clock(loop),
                cast("Transcoder", None),
                TurnScheduler(clock, loop.call_soon),
            ),
            closing_log=ClosingLog(cast("asyncio.AbstractEventLoop", loop)),
            closing=set(),
            opened=lambda connection: None,
            security=plain_security(),
            closed=lambda connection: None,
        )
        self.transport = Transport()
        self.connection = Connection(cast("ConnectionListener", listener), "192.0.2.1")
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def send(self, data: bytes) -> None:
        """Hand bytes to the connection as a transport does: into its buffer, as many as fit."""
        while data and self.transport.is_reading and not self.transport.is_closed:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def run_scheduled(self) -> None:
        while self.scheduled:
            self.scheduled.pop(0)()


def heartbeat(correlation_id: int, *, version: int = 0, group: str = "g", tags: bytes = b"\0") -> bytes:
    header = request_head(HEARTBEAT, version, correlation_id, b"c") + (tags if version >= 4 else b"")
    body = header + encode(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), version)
    return size_prefixed(body)


def answer(request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def test_a_request_is_answered_with_its_correlation_id() -> None:
    wire = Wire(answer)
    wire.send(heartbeat(7))
    (reply,) = wire.transport.replies()
    assert struct.unpack_from(">i", reply) == (7,)
    assert decode(HeartbeatResponse, reply[4:], 0) == HeartbeatResponse()


def test_a_flexible_reply_has_a_tagged_section_in_its_header() -> None:
    wire = Wire(answer)
    wire.send(heartbeat(7, version=4))
    (reply,) = wire.transport.replies()
    assert reply[4:5] == b"\0"
    assert decode(HeartbeatResponse, reply[5:], 4) == HeartbeatResponse()


def test_tags_in_a_request_header_are_skipped() -> None:
    wire = Wire(answer)
    wire.send(heartbeat(7, version=4, tags=b"\x02\x00\x03abc\x07\x01z"))
    assert wire.transport.correlation_ids() == [7]


@pytest.mark.parametrize("buffer_size", [16, 37, 64, 1 << 16])
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_frames_may_be_cut_and_glued_anywhere(buffer_size: int, cut: int) -> None:
    groups: list[str] = []

    def remember(request: HeartbeatRequest) -> HeartbeatResponse:
        groups.append(request.group_id)
        return HeartbeatResponse()

    wire = Wire(remember, buffer_size=buffer_size)
    stream = b"".join(heartbeat(i, group=f"group-{i}" * (i + 1)) for i in range(20))
    for start in range(0, len(stream), cut):
        wire.send(stream[start : start + cut])
    assert wire.transport.correlation_ids() == list(range(20))
    assert groups == [f"group-{i}" * (i + 1) for i in range(20)]


def test_a_claimed_size_alone_allocates_little() -> None:
    wire = Wire(answer, request_size_max=100 << 20)
    wire.send(struct.pack(">i", 100 << 20))
    assert len(wire.connection.get_buffer(-1)) <= 1 << 16


@pytest.mark.parametrize("size", [-1, 0, (1 << 20) + 1])
def test_an_impossible_size_closes_the_connection(size: int) -> None:
    wire = Wire(answer)
    wire.send(struct.pack(">i", size))
    assert wire.transport.is_closed


def test_an_unknown_api_an_unserved_version_and_rubbish_close_the_connection() -> None:
    for header in (request_head(999, 0, 1), request_head(HEARTBEAT, 9, 1), b"\0\x0c"):
        wire = Wire(answer)
        wire.send(size_prefixed(header))
        assert wire.transport.is_closed and not wire.transport.written


def test_a_body_that_is_cut_short_closes_the_connection() -> None:
    whole = heartbeat(1)
    for size in range(10, len(whole) - 4):
        wire = Wire(answer)
        wire.send(struct.pack(">i", size) + whole[4 : 4 + size])
        assert wire.transport.is_closed


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_our_range() -> None:
    wire = Wire(answer)
    header = request_head(API_VERSIONS, 127, 5) + b"what follows is unknown"
    wire.send(size_prefixed(header))
    (reply,) = wire.transport.replies()
    response = decode(ApiVersionsResponse, reply[4:], 0)
    assert response.error_code == 35
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 5)]


def test_a_handler_without_an_answer_sends_nothing() -> None:
    wire = Wire(lambda request: None)
    wire.send(heartbeat(1))
    assert not wire.transport.written and not wire.transport.is_closed


def test_a_handler_that_fails_closes_only_this_connection() -> None:
    def fail(request: HeartbeatRequest) -> HeartbeatResponse:
        raise RuntimeError("a bug")

    wire = Wire(fail)
    wire.send(heartbeat(1))
    assert wire.transport.is_closed


def test_replies_keep_the_order_of_the_requests() -> None:
    parked: list[Pending[HeartbeatResponse]] = []

    def park_every_other(request: HeartbeatRequest) -> HeartbeatResponse | Pending[HeartbeatResponse]:
        if request.group_id == "park":
            parked.append(Pending())
            return parked[-1]
        return HeartbeatResponse()

    wire = Wire(park_every_other)
    wire.send(heartbeat(0) + heartbeat(1, group="park") + heartbeat(2) + heartbeat(3, group="park") + heartbeat(4))
    assert wire.transport.correlation_ids() == [0]
    parked[1].complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [0]
    parked[0].complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [0, 1, 2, 3, 4]


def test_a_reply_that_is_ready_at_once_is_sent_at_once() -> None:
    ready: Pending[HeartbeatResponse] = Pending()
    ready.complete(HeartbeatResponse())
    wire = Wire(lambda request: ready)
    wire.send(heartbeat(1))
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1]


def test_with_many_replies_waiting_reading_stops_and_goes_on_later() -> None:
    parked: list[Pending[HeartbeatResponse]] = []

    def park(request: HeartbeatRequest) -> Pending[HeartbeatResponse]:
        parked.append(Pending())
        return parked[-1]

    wire = Wire(park)
    count = WAITING_REPLIES_MAX + 50
    wire.send(b"".join(map(heartbeat, range(count))))
    assert not wire.transport.is_reading
    assert len(parked) == WAITING_REPLIES_MAX
    for reply in parked:
        reply.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.is_reading
    for reply in parked[WAITING_REPLIES_MAX:]:
        reply.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == list(range(count))


def test_a_slow_reader_is_not_read_until_it_has_taken_its_replies() -> None:
    wire = Wire(answer)
    wire.connection.pause_writing()
    assert not wire.transport.is_reading
    wire.connection.resume_writing()
    assert wire.transport.is_reading
    wire.send(heartbeat(1))
    assert wire.transport.correlation_ids() == [1]


def test_a_reply_completed_after_the_connection_is_gone_goes_nowhere() -> None:
    reply: Pending[HeartbeatResponse] = Pending()
    wire = Wire(lambda request: reply)
    wire.send(heartbeat(1))
    wire.connection.connection_lost(None)
    reply.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert not wire.transport.written


def test_the_context_says_who_asks() -> None:
    seen: list[RequestContext] = []
    wire = Wire(answer)
    route = wire.connection.listener.routes[HEARTBEAT]

    def remember(context: RequestContext, request: object) -> HeartbeatResponse:
        seen.append(context)
        return HeartbeatResponse()

    route.handle = remember
    wire.send(heartbeat(3, version=2))
    (context,) = seen
    assert (context.version, context.correlation_id, context.client_id) == (2, 3, "c")
    assert context.client_host == "192.0.2.1"


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_waits_for_a_connection_that_is_gone_is_given_up(is_lost: bool) -> None:
    given_up: list[bool] = []
    reply: Pending[HeartbeatResponse] = Pending(lambda: given_up.append(True))
    wire = Wire(lambda request: reply)
    wire.send(heartbeat(1))
    if not is_lost:
        wire.connection.close("a test")
    wire.connection.connection_lost(None)
    assert given_up == [True]
    reply.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert given_up == [True] and not wire.transport.written


def test_replies_that_are_ready_leave_before_the_connection_is_closed() -> None:
    wire = Wire(answer)
    wire.send(heartbeat(1) + heartbeat(2) + struct.pack(">i", -1))
    assert wire.transport.is_closed
    assert wire.transport.correlation_ids() == [1, 2]


def test_a_reply_that_cannot_be_encoded_closes_the_connection_and_hurts_nobody_else() -> None:
    reply: Pending[HeartbeatResponse] = Pending()
    wire = Wire(lambda request: reply)
    wire.send(heartbeat(1))
    reply.complete(cast("HeartbeatResponse", object()))
    assert wire.transport.is_closed


def test_a_refused_version_waits_for_the_replies_before_it() -> None:
    reply: Pending[HeartbeatResponse] = Pending()
    wire = Wire(lambda request: reply)
    unknown = request_head(API_VERSIONS, 127, 2)
    wire.send(heartbeat(1) + size_prefixed(unknown))
    assert not wire.transport.written
    reply.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1, 2]


def test_many_requests_in_one_receive_do_not_pile_up_replies_for_a_slow_reader() -> None:
    wire = Wire(answer, buffer_size=1 << 20)
    most = 0

    def slow(data: bytes) -> None:
        nonlocal most
        most = max(most, len(data))
        wire.connection.pause_writing()

    wire.transport.write = slow  # type: ignore[method-assign]
    wire.transport.writelines = lambda pieces: slow(b"".join(pieces))  # type: ignore[method-assign]
    reply_size = 10
    wire.send(b"".join(map(heartbeat, range(30_000))))
    wire.run_scheduled()
    assert not wire.transport.is_reading
    assert most <= UNSENT_SIZE_MAX + 2 * reply_size


def test_a_burst_of_one_client_lets_others_have_their_turn() -> None:
    handled = 0

    def count(request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal handled
        handled += 1
        return HeartbeatResponse()

    wire = Wire(count, buffer_size=1 << 20)
    wire.send(b"".join(map(heartbeat, range(3 * ITERATION_REQUESTS_MAX + 1))))
    turns = [handled]
    while wire.scheduled:
        wire.scheduled.pop(0)()
        turns.append(handled)
    assert turns == [ITERATION_REQUESTS_MAX * i for i in (1, 2, 3)] + [3 * ITERATION_REQUESTS_MAX + 1]
    assert wire.transport.is_reading
    assert wire.transport.correlation_ids() == list(range(3 * ITERATION_REQUESTS_MAX + 1))


def test_replies_that_wait_for_one_before_them_do_not_pile_up() -> None:
    first: Pending[HeartbeatResponse] = Pending()
    taken: list[str] = []

    def park_the_first(request: HeartbeatRequest) -> HeartbeatResponse | Pending[HeartbeatResponse]:
        taken.append(request.group_id)
        return first if len(taken) == 1 else HeartbeatResponse()

    wire = Wire(park_the_first)
    wire.connection.replies._ready_size = WAITING_SIZE_MAX - 12
    wire.send(b"".join(map(heartbeat, range(10))))
    assert len(taken) == 3 and not wire.transport.is_reading
    wire.connection.replies._ready_size -= WAITING_SIZE_MAX - 12
    first.complete(HeartbeatResponse())
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == list(range(10)) and wire.transport.is_reading


def test_a_request_may_be_as_large_as_the_limit() -> None:
    size = len(heartbeat(1)) - 4
    for limit, is_closed in ((size, False), (size - 1, True)):
        wire = Wire(answer, request_size_max=limit)
        wire.send(heartbeat(1))
        assert wire.transport.is_closed is is_closed


def test_a_handler_that_closes_the_connection_ends_the_reading_of_what_came_with_it() -> None:
    wire = Wire(answer)
    seen: list[int] = []

    def close_at_two(context: RequestContext, request: object) -> HeartbeatResponse | None:
        seen.append(context.correlation_id)
        if context.correlation_id == 2:
            context.connection.close("a test")
            return None
        return HeartbeatResponse()

    wire.connection.listener.routes[HEARTBEAT].handle = close_at_two
    wire.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert seen == [1, 2]
    assert wire.transport.correlation_ids() == [1]


def test_a_closed_connection_whose_peer_takes_nothing_can_be_aborted() -> None:
    wire = Wire(answer)
    wire.connection.abort()
    assert not wire.transport.is_aborted
    wire.connection.close("a test")
    assert wire.connection.is_closed
    wire.connection.abort()
    assert wire.transport.is_aborted


class Crowd:
    """Connections that share a loop whose iterations are spent by the first of them."""

    def __init__(self, wire: Wire) -> None:
        self.first = wire
        self.turns = wire.connection.listener.resources.turns

    def spend(self) -> None:
        """Use up the budget of the iteration."""
        self.turns._clock.latest_ns += BUDGET_NS
        self.turns.handled(self.turns._clock.latest_ns - BUDGET_NS)
        assert self.turns.is_spent


def test_what_arrives_when_the_budget_is_spent_is_kept_until_its_turn() -> None:
    wire = Wire(answer)
    Crowd(wire).spend()
    assert len(wire.connection.get_buffer(-1)) == SMALL_SIZE
    wire.send(heartbeat(1) + heartbeat(2) + heartbeat(3)[:9])
    assert not wire.transport.written and not wire.transport.is_reading
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1, 2] and wire.transport.is_reading
    wire.send(heartbeat(3)[9:])
    assert wire.transport.correlation_ids() == [1, 2, 3]


def test_a_part_of_a_frame_does_not_wait_for_a_turn() -> None:
    wire = Wire(answer)
    for size in (3, 9):
        Crowd(wire).spend()
        wire.send(heartbeat(1)[size // 9 * 3 : size])
        assert wire.transport.is_reading and wire.connection._partial is not None
        wire.run_scheduled()
    Crowd(wire).spend()
    wire.send(heartbeat(1)[9:])
    assert not wire.transport.written and not wire.transport.is_reading
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1] and wire.transport.is_reading


@pytest.mark.parametrize(
    ("frames", "of_node", "rank"),
    [
        (1, "", ConnectionRank.SINGLE),
        (2, "", ConnectionRank.BACKLOG),
        (1, "listener", ConnectionRank.NODE),
        (2, "listener", ConnectionRank.BACKLOG),
        (1, "follower", ConnectionRank.NODE),
        (2, "follower", ConnectionRank.BACKLOG),
        (2, "heartbeat", ConnectionRank.NODE),
    ],
)
def test_the_rank_follows_from_what_arrives(frames: int, of_node: str, rank: ConnectionRank) -> None:
    wire = Wire(answer)
    cast("Any", wire.connection.listener).is_for_nodes = of_node == "listener"
    wire.connection.heartbeat_broker_id = 1 if of_node == "heartbeat" else -1
    wire.connection.is_of_follower = of_node == "follower"
    crowd = Crowd(wire)
    crowd.spend()
    wire.send(b"".join(map(heartbeat, range(frames))))
    assert [len(queue) for queue in crowd.turns._queues] == [each is rank for each in ConnectionRank]


def test_a_turn_ends_with_its_time_and_what_is_left_is_not_copied() -> None:
    now_ns = 0

    def take_long(request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_ns
        now_ns += BUDGET_NS // 4
        return HeartbeatResponse()

    wire = Wire(take_long)
    clock = wire.connection.listener.resources.clock
    clock._time_ns = lambda: now_ns
    clock.read()
    wire.send(b"".join(map(heartbeat, range(13))))
    assert wire.transport.correlation_ids() == [0, 1, 2, 3]
    memory = wire.connection.listener.resources.request_memory
    held = memory.used_size
    partial = wire.connection._partial
    assert partial is not None and held == 9 * len(heartbeat(0))
    wire.scheduled.pop(0)()
    assert wire.transport.correlation_ids() == list(range(8)) and wire.connection._partial is not None
    assert wire.connection._partial.buffer.obj is partial.buffer.obj and memory.used_size == held
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == list(range(13)) and memory.used_size == 0
    assert wire.transport.is_reading


@pytest.mark.parametrize("ends", ["close", "connection_lost"])
def test_a_connection_that_ends_while_it_waits_has_no_turn(ends: str) -> None:
    handled: list[str] = []

    def note(request: HeartbeatRequest) -> HeartbeatResponse:
        handled.append(request.group_id)
        return HeartbeatResponse()

    wire = Wire(note)
    Crowd(wire).spend()
    wire.send(heartbeat(1))
    getattr(wire.connection, ends)("a test" if ends == "close" else None)
    wire.run_scheduled()
    assert not handled and wire.connection.listener.resources.request_memory.used_size == 0


def test_a_connection_that_is_held_when_its_turn_comes_is_served_when_it_is_released() -> None:
    wire = Wire(answer)
    crowd = Crowd(wire)
    crowd.spend()
    wire.send(heartbeat(1) + heartbeat(2))
    wire.connection.hold()
    wire.run_scheduled()
    assert not wire.transport.written and not crowd.turns.waiting_count

    async def work() -> None:
        crowd.spend()

    with contextlib.suppress(StopIteration):
        wire.connection.hold_during(work()).send(None)
    assert not wire.transport.written and [len(queue) for queue in crowd.turns._queues] == [0, 0, 1, 0, 0]
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1, 2] and wire.transport.is_reading


def test_a_reason_that_ends_while_it_waits_does_not_bring_its_turn_forward() -> None:
    wire = Wire(answer)
    Crowd(wire).spend()
    wire.send(heartbeat(1))
    wire.connection.pause_writing()
    wire.connection.resume_writing()
    assert not wire.transport.written and not wire.transport.is_reading
    wire.run_scheduled()
    assert wire.transport.correlation_ids() == [1] and wire.transport.is_reading
