"""The queue of replies alone: order, what is held, when it is too much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.network.flow_control import FlowControl
from moldau.broker.network.memory import ReplyMemory
from moldau.broker.network.replies import (
    JOINED_PIECES_MAX,
    KEPT_PIECE_SIZE_MIN,
    WAITING_REPLIES_MAX,
    WAITING_SIZE_MAX,
    Output,
    QueuedReply,
    ReplyQueue,
    coalesce,
)
from moldau.broker.network.route import RequestContext, Route
from moldau.broker.runtime.pending import Pending
from tests.support.request_clocks import request_clock


class Transport:
    """Keeps what is written and whether it is read."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.written += b"".join(pieces)

    def pause_reading(self) -> None:
        self.is_reading = False

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0


class Queue:
    """A queue with an output, flow control and a memory of so many bytes."""

    def __init__(self, size_max: int = -1) -> None:
        loop = SimpleNamespace(call_soon=lambda call: None, call_later=lambda delay_s, call: None)
        self.memory = ReplyMemory(size_max, cast("Any", loop))
        resources = SimpleNamespace(loop=loop, reply_memory=self.memory, clock=request_clock(loop))
        self.output = Output(cast("Any", resources), cast("Any", object()))
        self.transport = Transport()
        self.output.transport = cast("Any", self.transport)
        self.replies = ReplyQueue(self.output, self.memory)
        self.flow = FlowControl(self.output, self.replies)

    def context(self) -> RequestContext:
        route = Route(1, "Fetch", 0, 0, lambda: pytest.fail("nothing is decoded here"))
        return RequestContext(cast("Any", object()), route, 0, 0, None)

    def park(self, reply: Pending[object] | None = None) -> QueuedReply:
        parked = QueuedReply(self.context(), reply or Pending())
        self.replies.waiting.append(parked)
        return parked

    def put(self, data: bytes) -> bool:
        return self.replies.put(self.context(), [data], len(data))

    def complete(self, reply: QueuedReply, data: bytes) -> bool:
        return self.replies.complete(reply, [data], len(data))

    def written(self) -> bytes:
        self.output.flush()
        return self.transport.written


@pytest.mark.parametrize("last_first", [False, True])
def test_replies_leave_in_the_order_of_their_requests(last_first: bool) -> None:
    queue = Queue()
    assert not queue.put(b"0")
    first = queue.park()
    assert queue.put(b"2")
    second = queue.park()
    assert queue.put(b"4")
    assert queue.written() == b"0"
    if last_first:
        assert not queue.complete(second, b"3")
        assert queue.written() == b"0"
        assert queue.complete(first, b"1")
    else:
        assert queue.complete(first, b"1")
        assert queue.written() == b"012"
        assert queue.complete(second, b"3")
    assert queue.written() == b"01234" and not queue.replies.waiting


def test_a_reply_that_waits_holds_memory_until_it_is_written() -> None:
    queue = Queue()
    first = queue.park()
    queue.put(b"x" * 100)
    assert queue.memory.used_size == 100
    queue.complete(first, b"y")
    assert queue.memory.used_size == 100
    queue.output.flush()
    assert queue.memory.used_size == 0


def test_a_connection_is_ahead_with_many_replies_or_many_bytes_or_none_left_for_others() -> None:
    queue = Queue()
    for _ in range(WAITING_REPLIES_MAX - 1):
        queue.park()
    assert not queue.replies.is_ahead()
    queue.park()
    assert queue.replies.is_ahead()

    queue = Queue()
    queue.park()
    queue.replies.put(queue.context(), [b"x"], WAITING_SIZE_MAX)
    assert not queue.replies.is_ahead()
    queue.put(b"x")
    assert queue.replies.is_ahead()

    queue = Queue(size_max=10)
    queue.park()
    assert not queue.replies.is_ahead()
    queue.put(b"x" * 10)
    assert queue.replies.is_ahead()


def test_what_waits_is_named_and_given_up() -> None:
    queue = Queue()
    given_up: list[bool] = []
    queue.park(Pending(lambda: given_up.append(True)))
    queue.put(b"ready")
    assert queue.replies.parked_apis() == ["Fetch"]
    queue.replies.abandon()
    assert given_up == [True] and queue.replies.parked_apis() == [] and not queue.replies.is_ahead()


def test_a_connection_that_is_paused_goes_on_when_no_reason_is_left() -> None:
    queue = Queue()
    assert not queue.flow.may_resume(), "it is read"
    queue.flow.hold()
    assert not queue.transport.is_reading and not queue.flow.may_resume()
    queue.flow.release()
    queue.output.is_writable = False
    assert not queue.flow.may_resume()
    queue.output.is_writable = True
    assert queue.flow.may_resume()
    for _ in range(WAITING_REPLIES_MAX):
        queue.park()
    assert not queue.flow.may_resume()
    queue.replies.abandon()
    queue.transport.is_closed = True
    assert not queue.flow.may_resume()


def test_a_transport_that_closes_is_not_paused() -> None:
    queue = Queue()
    queue.transport.is_closed = True
    queue.flow.pause()
    assert queue.transport.is_reading and not queue.flow.is_paused


def test_pieces_are_joined_in_short_calls() -> None:
    large = bytes(KEPT_PIECE_SIZE_MIN)
    small = [b"%d" % number for number in range(2 * JOINED_PIECES_MAX + 1)]
    joined = coalesce([*small, large, *small[:2]])
    assert b"".join(cast("list[bytes]", joined)) == b"".join([*small, large, *small[:2]])
    assert joined[0] == b"".join(small[:JOINED_PIECES_MAX]) and joined[3] is large and len(joined) == 5
