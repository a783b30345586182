"""The times of requests by stage: a delay appears in the stage where it is, in no other, and in the total."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from moldau.broker.network import route as route_module
from moldau.broker.network.connection import Connection
from moldau.broker.network.connection_resources import ClosingLog, ConnectionResources
from moldau.broker.network.listener_security import plain_security
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.request_times import RequestTimes, TimeHistogram, since_last_byte_ns
from moldau.broker.network.route import ClientConnection, FrameHook, RequestContext, Route, RouteBinding
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.runtime.pending import DATA, REPLICAS, Pending
from moldau.protocol.frames import request_frame, size_prefixed
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.purgatories import ManualLoop
from tests.support.request_clocks import request_clock

HEARTBEAT = 12
MS = 1_000_000
DELAY_MS = 40


class Transport:
    """Takes bytes as long as it is told to, and takes time for it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.write_ms = 0
        self.is_full = False
        self.arrived_ms_ago = 0

    def get_extra_info(self, name: str) -> object:
        if name == "socket":
            return SimpleNamespace(getsockopt=lambda *_: struct.pack("=52xI", self.arrived_ms_ago))
        return ("192.0.2.1", 50000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        self.wire.pass_ms(self.write_ms)
        if self.is_full:
            self.wire.connection.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def drain(self) -> None:
        self.is_full = False
        self.wire.connection.resume_writing()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Wire:
    """A connection whose clock passes only if a test says so."""

    def __init__(self, slow_ms: int = -1) -> None:
        self.now_ns = 1_000 * MS
        self.respond: Callable[[], object] = HeartbeatResponse
        self.handle_ms = self.decode_ms = self.encode_ms = 0
        self.encodes_aside = False
        self.hook: FrameHook | None = None
        self.loop = ManualLoop()
        loop = cast("Any", self.loop)
        self.clock = request_clock(SimpleNamespace(time=lambda: self.now_ns / 1e9), lambda: self.now_ns, slow_ms)
        self.route = Route(
            HEARTBEAT, "Heartbeat", 0, 4, lambda: RouteBinding(HeartbeatRequest, HeartbeatResponse, self.handle)
        )
        self._slow_codecs()
        listener = SimpleNamespace(
            name="PLAINTEXT",
            request_size_max=1 << 20,
            routes={HEARTBEAT: self.route},
            is_for_nodes=False,
            resources=ConnectionResources(
                loop,
                cast("Any", None),
                lambda work, name="": None,
                memoryview(bytearray(1 << 16)),
                RequestMemory(None, loop),
                ReplyMemory(-1, loop),
                Purgatory(loop, Timeouts(loop), lambda: 0),
                self.clock,
                cast("Any", None),
                TurnScheduler(self.clock, loop.call_soon),
            ),
            closing_log=ClosingLog(cast("Any", SimpleNamespace(time=lambda: 0.0))),
            closing=set(),
            opened=lambda connection: None,
            closed=lambda connection: None,
            security=plain_security(),
        )
        self.connection = Connection(cast("Any", listener), "192.0.2.1")
        self.transport = Transport(self)
        self.connection.connection_made(cast("Any", self.transport))

    def _slow_codecs(self) -> None:
        decoder = self.route.load(0)
        assert decoder is not None
        encoder = self.route.encoders[0]

        def decoded(*arguments: Any) -> Any:
            self.pass_ms(self.decode_ms)
            return decoder(*arguments)

        def encoded(*arguments: Any) -> Any:
            self.pass_ms(self.encode_ms)
            return encoder(*arguments)

        self.route.decoders[0] = decoded
        self.route.encoders[0] = encoded

    def pass_ms(self, time_ms: int) -> None:
        self.now_ns += time_ms * MS

    def handle(self, context: RequestContext, request: object) -> object:
        context.is_long = self.encodes_aside
        self.pass_ms(self.handle_ms)
        return self.respond()

    def send(self, count: int = 1) -> None:
        """Hand requests to the connection, in an iteration of the loop of its own."""
        self.loop.run()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        data = size_prefixed(request_frame(request, 0, 7, b"a b")) * count
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def stages_ms(self) -> dict[str, float]:
        """The stages in which time passed, in ms over all requests."""
        times = self.route.times
        sums = {
            "queue": times.queue.sum,
            "decode": times.decode.sum,
            "local": times.local.sum,
            "remote": times.remote.sum,
            "encode": times.encode.sum,
            "response queue": times.response_queue.sum,
            "send": times.send.sum,
        }
        assert sum(sums.values()) == pytest.approx(times.total.sum)
        return {name: value for name, value in sums.items() if value}


def test_a_delay_before_the_broker_reads_is_time_in_the_queue() -> None:
    """The loop was held: the bytes waited in the kernel, which says for how long."""
    wire = Wire()
    wire.transport.arrived_ms_ago = DELAY_MS + 2
    wire.pass_ms(DELAY_MS)
    wire.send()
    assert wire.stages_ms() == {"queue": DELAY_MS}


def test_the_kernel_is_not_asked_while_the_loop_is_quick() -> None:
    wire = Wire()
    wire.pass_ms(DELAY_MS)
    for _ in range(10):
        wire.send()
    wire.transport.arrived_ms_ago = DELAY_MS + 2
    wire.send()
    assert wire.stages_ms() == {}


@pytest.mark.parametrize("stage", ["decode", "local", "encode"])
def test_a_delay_in_the_broker_is_in_its_stage(stage: str) -> None:
    wire = Wire()
    wire.decode_ms = DELAY_MS if stage == "decode" else 0
    wire.handle_ms = DELAY_MS if stage == "local" else 0
    wire.encode_ms = DELAY_MS if stage == "encode" else 0
    wire.send()
    assert wire.stages_ms() == {stage: DELAY_MS}
    assert wire.route.times.total.count == 1


def test_a_wait_is_remote_time_and_has_a_cause() -> None:
    wire = Wire()
    parked: Pending[object] = Pending(waits_for=REPLICAS)
    wire.respond = lambda: parked
    wire.send()
    assert wire.route.times.total.count == 0
    wire.pass_ms(DELAY_MS)
    parked.complete(HeartbeatResponse())
    assert wire.stages_ms() == {"remote": DELAY_MS}
    assert {name: waits.sum for name, waits in wire.route.times.waits.items()} == {REPLICAS: DELAY_MS}


def test_a_reply_behind_one_that_waits_is_time_in_the_response_queue() -> None:
    wire = Wire()
    parked: Pending[object] = Pending(waits_for=REPLICAS)
    responses: list[object] = [parked, HeartbeatResponse()]
    wire.respond = lambda: responses.pop(0)
    wire.send(2)
    wire.pass_ms(DELAY_MS)
    parked.complete(HeartbeatResponse())
    assert wire.stages_ms() == {"remote": DELAY_MS, "response queue": DELAY_MS}
    assert wire.route.times.total.count == 2


def test_the_second_request_of_a_receive_waits_for_the_first() -> None:
    wire = Wire()
    wire.handle_ms = 1
    wire.send(2)
    # The first is answered with the second, in one write.
    assert wire.stages_ms() == {"queue": 1, "local": 2, "response queue": 1}


def test_a_request_that_waits_for_its_turn_is_in_the_queue() -> None:
    wire = Wire()
    wire.handle_ms = DELAY_MS
    wire.send(2)
    assert wire.stages_ms() == {"local": DELAY_MS}
    wire.pass_ms(DELAY_MS)
    wire.loop.run()
    assert wire.stages_ms() == {"queue": 2 * DELAY_MS, "local": 2 * DELAY_MS}


def test_a_write_that_takes_long_is_time_of_the_sending() -> None:
    wire = Wire()
    wire.transport.write_ms = DELAY_MS
    wire.send()
    assert wire.stages_ms() == {"send": DELAY_MS}


def test_a_client_that_takes_its_reply_late_is_time_of_the_sending() -> None:
    wire = Wire()
    wire.transport.is_full = True
    wire.send()
    assert wire.route.times.total.count == 0
    wire.pass_ms(DELAY_MS)
    wire.transport.drain()
    assert wire.stages_ms() == {"send": DELAY_MS}


def test_a_request_that_came_during_a_pause_waits_in_the_queue() -> None:
    wire = Wire()
    wire.connection.hold()
    wire.send()
    wire.pass_ms(DELAY_MS)
    wire.connection._flow.release()
    wire.connection._resume()
    assert wire.stages_ms() == {"queue": DELAY_MS}


def test_a_client_that_goes_away_while_its_request_waits_is_measured_until_then() -> None:
    wire = Wire()
    parked: Pending[object] = Pending(waits_for=REPLICAS)
    wire.respond = lambda: parked
    wire.send()
    wire.pass_ms(DELAY_MS)
    wire.connection.connection_lost(None)
    assert wire.stages_ms() == {"remote": DELAY_MS}


def test_a_request_without_a_response_ends_when_it_is_handled() -> None:
    wire = Wire()
    wire.handle_ms = DELAY_MS
    wire.respond = lambda: None
    wire.send()
    assert wire.stages_ms() == {"local": DELAY_MS}


NEEDS_PLAIN_PYTHON = pytest.mark.skipif(
    not str(route_module.__file__).endswith(".py"), reason="a compiled hook cannot be replaced"
)


class Hook(FrameHook if TYPE_CHECKING or str(route_module.__file__).endswith(".py") else object):  # type: ignore[misc]
    """Answers every frame, and takes time for it."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire.route)
        self._wire = wire
        self.client_id = "hooked"

    def partitions(self) -> list[str]:
        return ["t-0"]

    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes:
        self._wire.pass_ms(self._wire.handle_ms)
        return b"\0\0\0\1x"

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        return True


@NEEDS_PLAIN_PYTHON
@pytest.mark.parametrize("count", [1, 2, 5])
def test_frames_that_a_hook_answers_have_exact_totals(count: int) -> None:
    wire = Wire()
    wire.connection.hook = Hook(wire)
    wire.handle_ms, wire.transport.write_ms = 10, 3
    wire.send(count)
    times, wait_ms = wire.route.times, 10 * count * (count - 1) / 2
    assert (times.total.count, times.total.sum) == (count, count * (10 * count + 3))
    stages = {"local": 10 * count, "send": 3 * count, "queue": wait_ms, "response queue": wait_ms}
    assert wire.stages_ms() == {name: value for name, value in stages.items() if value}


@NEEDS_PLAIN_PYTHON
def test_a_hook_s_reply_behind_one_that_waits_is_measured_too() -> None:
    wire = Wire()
    parked: Pending[object] = Pending(waits_for=REPLICAS)
    wire.respond = lambda: parked
    wire.send()
    wire.connection.hook = Hook(wire)
    wire.send()
    wire.pass_ms(DELAY_MS)
    parked.complete(HeartbeatResponse())
    assert wire.stages_ms() == {"remote": DELAY_MS, "response queue": DELAY_MS}


@NEEDS_PLAIN_PYTHON
def test_a_hook_s_replies_to_a_full_socket_are_sent_when_it_is_drained() -> None:
    wire = Wire()
    wire.connection.hook = Hook(wire)
    wire.transport.is_full = True
    wire.send(3)
    wire.pass_ms(DELAY_MS)
    wire.transport.drain()
    assert wire.stages_ms() == {"send": 3 * DELAY_MS}


def test_a_slow_request_has_a_line_with_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(slow_ms=30)
    wire.handle_ms = 20
    wire.send()
    assert caplog.records == []
    wire.handle_ms = DELAY_MS
    wire.send()
    (line,) = caplog.messages
    assert line.startswith("slow_request api=Heartbeat version=0 total_ms=40.000 queue_ms=0.000 decode_ms=0.000")
    for pair in ("local_ms=40.000", 'client_id="a b"', "client=192.0.2.1:50000", "principal=User:ANONYMOUS"):
        assert f" {pair} " in line
    assert wire.clock.slow.count == 1


@NEEDS_PLAIN_PYTHON
def test_a_slow_hook_has_a_line_too(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(slow_ms=30)
    wire.connection.hook = Hook(wire)
    wire.handle_ms = DELAY_MS
    wire.send(2)
    (line,) = caplog.messages
    assert "requests=2 total_ms=80.000" in line and "client_id=hooked" in line and line.endswith("partitions=t-0")


def test_a_wait_that_the_client_asked_for_is_not_slow(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(slow_ms=30)
    for waits_for in (DATA, REPLICAS):
        parked: Pending[object] = Pending(waits_for=waits_for)
        wire.respond = lambda parked=parked: parked  # type: ignore[misc]
        wire.send()
        wire.pass_ms(DELAY_MS)
        parked.complete(HeartbeatResponse())
    (line,) = caplog.messages
    assert "waits_for=replicas" in line


def test_slow_requests_have_a_limited_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(slow_ms=0)
    later: list[Callable[[], None]] = []
    wire.clock.slow._loop = cast(
        "Any", SimpleNamespace(time=lambda: 0.0, call_at=lambda when, call: later.append(call))
    )
    wire.handle_ms = 1
    for _ in range(15):
        wire.send()
    assert len(caplog.records) == 10 and wire.clock.slow.count == 15
    (sum_up,) = later
    sum_up()
    assert caplog.messages[-1].startswith("5 more requests were slow")


def test_the_request_that_held_the_loop_longest_is_named(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    wire.handle_ms = 60
    wire.send()
    wire.handle_ms = 0
    wire.encode_ms = 70
    wire.send()
    wire.encode_ms = 0
    wire.send()
    with caplog.at_level(logging.WARNING):
        wire.clock.steps.log_longest()
        wire.clock.steps.log_longest()
    (line,) = caplog.messages
    assert line.startswith("longest_step held_ms=70.0 step=\"the encoding of Heartbeat of client 'a b' at 192.0.2.1")
    assert wire.clock.steps.last.held_ns == 0


def test_an_encoding_in_an_executor_thread_holds_the_loop_for_no_time() -> None:
    wire = Wire()
    wire.encode_ms = 70
    wire.encodes_aside = True
    wire.send()
    assert wire.clock.steps.longest_ns == 0


def test_times_of_two_listeners_are_added() -> None:
    sums = RequestTimes(HEARTBEAT)
    for _ in range(2):
        wire = Wire()
        parked: Pending[object] = Pending(waits_for=REPLICAS)
        wire.respond = lambda parked=parked: parked  # type: ignore[misc]
        wire.send()
        wire.pass_ms(DELAY_MS)
        parked.complete(HeartbeatResponse())
        sums.add(wire.route.times)
    assert (sums.total.count, sums.total.sum, sums.waits[REPLICAS].count) == (2, 2 * DELAY_MS, 2)


def test_a_histogram_counts_a_time_below_its_bound() -> None:
    histogram = TimeHistogram((1, 10))
    for time_ns, count in ((0, 2), (MS, 1), (MS + 1, 1), (11 * MS, 3)):
        histogram.observe(time_ns, count)
    assert (histogram.counts, histogram.count) == ([3, 1, 3], 7)


def test_a_transport_without_a_socket_of_tcp_is_not_late() -> None:
    none = SimpleNamespace(get_extra_info=lambda name: None)
    assert since_last_byte_ns(cast("Any", none)) == since_last_byte_ns(None) == 0

    def refuses(*_: object) -> bytes:
        raise OSError("not a socket of TCP")

    other = SimpleNamespace(get_extra_info=lambda name: SimpleNamespace(getsockopt=refuses))
    assert since_last_byte_ns(cast("Any", other)) == 0
