"""The times of requests by stage, and the clock that they are measured with.

    stage            begins when                                            Apache Kafka's metric
    queue            the last byte of the request was received              RequestQueueTimeMs
    decode           the broker begins with the request                     (part of RequestQueueTimeMs)
    local            the request is decoded                                 LocalTimeMs
    remote           the handler has returned a `Pending`                   RemoteTimeMs
    encode           the response is there                                  (part of LocalTimeMs or RemoteTimeMs)
    response queue   the response is encoded                                ResponseQueueTimeMs
    send             the write of the reply begins                          ResponseSendTimeMs
    (end)            the last byte of the reply was handed to the kernel    TotalTimeMs is the sum of all stages

The clock is read once for each receive and twice for each write. A request that is decoded costs two more readings; a
reply that waits costs two more. Frames that a hook answers without decoding share the readings of their receive and of
their write: the total time of each is exact, and each gets an equal part of the time in which all of them were handled.

The kernel receives bytes also while the event loop is held by something else. If the loop may have
been held for `HELD_NS_MIN`, the kernel is therefore asked how long ago the last byte came in (TCP_INFO).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from moldau.broker.network.route import RequestContext
    from moldau.broker.network.slow_requests import SlowRequests
    from moldau.broker.runtime.loop_steps import LoopSteps

BOUNDS_MS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10000, 60000)
FINE_BOUNDS_MS: Final = (
    *(
        round(scale * step, 4)
        for scale in (0.01, 0.1, 1, 10, 100, 1000)
        for step in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
    ),
    10000,
    30000,
    60000,
)
"""Upper bounds (ms) of histogram buckets in steps of about a quarter, so that a quantile between two bounds is known
within a few per cent.
"""
FINE_APIS: Final = (0, 1)
"""The API keys of Produce and Fetch, whose total times are counted with fine bounds. More series would make each scrape
long.
"""
HELD_NS_MIN: Final = 4_000_000
KERNEL_STEP_MS: Final = 4
"""The step (ms) in which the kernel counts the time since the last byte. The kernel may report one step too many."""
ASKED_AFTER_HELD: Final = 8
"""The number of receives without delay, one after the other, after which the kernel is not asked any more."""
TCP_INFO_SIZE: Final = 56
_LAST_DATA_RECEIVED: Final = struct.Struct("=52xI").unpack
"""Reads the field tcpi_last_data_recv of Linux' struct tcp_info, in milliseconds."""


class TimeHistogram:
    """A histogram of times. `counts` has the number of times in each bucket, which ends at an upper bound. The last
    bucket has the times above the last bound.
    """

    __slots__ = ("_bounds_ns", "bounds", "count", "counts", "sum_ns")

    def __init__(self, bounds_ms: tuple[float, ...] = BOUNDS_MS) -> None:
        self.bounds = bounds_ms
        self._bounds_ns = [round(each * 1_000_000) for each in bounds_ms]
        self.counts = [0] * (len(bounds_ms) + 1)
        self.count = 0
        self.sum_ns = 0

    def observe(self, time_ns: int, count: int) -> None:
        """Count `count` requests that took `time_ns` each."""
        index = 0
        for bound_ns in self._bounds_ns:  # Most times are below one of the first bounds.
            if time_ns <= bound_ns:
                break
            index += 1
        self.counts[index] += count
        self.count += count
        self.sum_ns += time_ns * count

    @property
    def sum(self) -> float:
        """The sum of the times in ms."""
        return self.sum_ns / 1e6

    def add(self, other: TimeHistogram) -> None:
        """Add the times of another histogram with the same bounds."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.count += other.count
        self.sum_ns += other.sum_ns


class TimeSum:
    """The sum and the number of times."""

    __slots__ = ("count", "sum_ns")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0

    def observe(self, time_ns: int) -> None:
        self.count += 1
        self.sum_ns += time_ns

    @property
    def sum(self) -> float:
        """The sum of the times in ms."""
        return self.sum_ns / 1e6

    def add(self, other: TimeSum) -> None:
        self.count += other.count
        self.sum_ns += other.sum_ns


class RequestTimes:
    """The times of the requests of one API."""

    __slots__ = ("decode", "encode", "local", "queue", "remote", "response_queue", "send", "total", "waits")

    def __init__(self, key: int) -> None:
        """`key`: the API key."""
        self.total = TimeHistogram(FINE_BOUNDS_MS if key in FINE_APIS else BOUNDS_MS)
        self.queue = TimeHistogram()
        self.decode = TimeSum()
        self.local = TimeHistogram()
        self.remote = TimeHistogram()
        self.encode = TimeSum()
        self.response_queue = TimeHistogram()
        self.send = TimeHistogram()
        self.waits: dict[str, TimeSum] = {}
        """The remote times of requests by what they waited for."""

    def observe(self, context: RequestContext, sent_ns: int) -> None:
        """Add the times of a request. The last byte of its reply was handed to the kernel at `sent_ns`."""
        completed_ns, encoded_ns, written_ns = context.completed_ns, context.encoded_ns, context.written_ns
        self.queue.observe(context.began_ns - context.received_ns, 1)
        self.decode.observe(context.decoded_ns - context.began_ns)
        self.local.observe(context.handled_ns - context.decoded_ns, 1)
        waited_ns = completed_ns - context.handled_ns
        self.remote.observe(waited_ns, 1)
        if context.waits_for:
            waits = self.waits.get(context.waits_for)
            if waits is None:
                waits = self.waits[context.waits_for] = TimeSum()
            waits.observe(waited_ns)
        self.encode.observe(encoded_ns - completed_ns)
        self.response_queue.observe(written_ns - encoded_ns, 1)
        self.send.observe(sent_ns - written_ns, 1)
        self.total.observe(sent_ns - context.received_ns, 1)

    def observe_hooked(self, count: int, received_ns: int, began_ns: int, written_ns: int, sent_ns: int) -> None:
        """Add the times of `count` frames that a hook answered one after the other and whose replies left together.

        Each frame counts with an equal part of the time in which all of them were handled. The remaining part of that
        time counts as waiting for the other frames.
        """
        handled_ns = written_ns - began_ns
        local_ns = handled_ns // count
        before_ns = (handled_ns - local_ns) // 2
        self.queue.observe(began_ns - received_ns + before_ns, count)
        self.local.observe(local_ns, count)
        self.remote.observe(0, count)
        self.response_queue.observe(handled_ns - local_ns - before_ns, count)
        self.send.observe(sent_ns - written_ns, count)
        self.total.observe(sent_ns - received_ns, count)

    def add(self, other: RequestTimes) -> None:
        """Add the times of requests of the same API at another listener."""
        for mine, its in (
            (self.total, other.total),
            (self.queue, other.queue),
            (self.local, other.local),
            (self.remote, other.remote),
            (self.response_queue, other.response_queue),
            (self.send, other.send),
        ):
            mine.add(its)
        self.decode.add(other.decode)
        self.encode.add(other.encode)
        for name, waits in other.waits.items():
            self.waits.setdefault(name, TimeSum()).add(waits)


class RequestClock:
    """The clock that measures the requests of a node. It also has the log of slow requests and the longest steps of the
    event loop, which are fed by these measurements.
    """

    __slots__ = ("_asks", "_received_ns", "_time_ns", "latest_ns", "slow", "steps")

    def __init__(self, time_ns: Callable[[], int], slow: SlowRequests, steps: LoopSteps) -> None:
        """`time_ns`: a precise monotonic clock (ns)."""
        self._time_ns = time_ns
        self.slow = slow
        """The log of slow requests, which is told of each request that took longer than the threshold."""
        self.steps = steps
        """The longest steps of the event loop."""
        self.latest_ns = 0
        """The last reading (ns)."""
        self._received_ns = 0
        self._asks = 0

    def read(self) -> int:
        self.latest_ns = self._time_ns()
        return self.latest_ns

    def received(self, transport: asyncio.Transport | None, was_paused: bool, previous_ns: int) -> int:
        """The time (ns) at which the kernel received the bytes that a connection has just been given. Sets `latest_ns`
        to the current time.

        `previous_ns` is the time at which the connection received bytes before. `was_paused`: whether the connection
        was not read for a part of the time since then.
        """
        now_ns = self.latest_ns = self._time_ns()
        gap_ns = now_ns - self._received_ns
        self._received_ns = now_ns
        if gap_ns >= HELD_NS_MIN:
            self._asks = ASKED_AFTER_HELD
        elif not self._asks and not (was_paused and now_ns - previous_ns >= HELD_NS_MIN):
            return now_ns
        late_ns = since_last_byte_ns(transport)
        if late_ns >= HELD_NS_MIN:
            self._asks = ASKED_AFTER_HELD
            return now_ns - late_ns
        if self._asks:
            self._asks -= 1
        return now_ns


def since_last_byte_ns(transport: asyncio.Transport | None) -> int:
    """The time (ns) since the last byte arrived at the socket of the transport; 0 if it is short or unknown."""
    own = None if transport is None else transport.get_extra_info("socket")
    if own is None:
        return 0
    try:
        (late_ms,) = _LAST_DATA_RECEIVED(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE))
    except (OSError, struct.error, AttributeError):
        return 0  # It is not a socket of TCP, or the system is not Linux.
    return (int(late_ms) - KERNEL_STEP_MS // 2) * 1_000_000 if late_ms >= 2 * KERNEL_STEP_MS else 0
