"""Schedules the requests of connections on an event loop: how long one iteration serves them, and in which order.

Received bytes are handled at once while the requests of an iteration have taken less than `BUDGET_NS`. After that,
bytes are kept, and their connection waits for its turn in the next iteration, after timers and other callbacks of the
node. A connection that could not handle all that it received waits, too. Waiting connections are served by rank:

    rank           connections                                         its share ends at
    NODE           of nodes of the cluster                             40 % of the budget
    SINGLE         whose client sent one request                       70 %
    BACKLOG        whose client sent more than one at a time           90 %
    LOGIN          whose client has not logged in, and sent one        95 %
    LOGIN_BACKLOG  whose client has not logged in, and sent more       100 %

If a rank does not use all of its share, the ranks below get the rest. The last rank with waiting connections has all
the time that is left. Each rank with waiting connections gets at least one turn. The connections of a rank are served
round robin: a turn of a backlog lasts `QUANTUM_NS`, or longer if few wait. The rank follows from the requests that have
arrived, not from those that are left after a turn. So a client that sends one request at a time waits only for clients
that do the same, even if other clients pipeline many requests. Each backlog is served for the same time.

A connection has the rank NODE if a broker's heartbeat has come through it. A connection whose client sent one request
also has it if a follower fetches through it, or if its listener is for nodes of the cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from moldau.broker.network.request_times import RequestClock

BUDGET_NS: Final = 2_000_000
"""The time (ns) that one event loop iteration spends on requests, during which nothing else runs."""
QUANTUM_NS: Final = 200_000
"""The time (ns) of a turn if many connections wait. A request that has begun is handled completely."""


class ConnectionRank(IntEnum):
    """The ranks of waiting connections, in the order in which they are served."""

    NODE = 0
    SINGLE = 1
    BACKLOG = 2
    LOGIN = 3
    LOGIN_BACKLOG = 4


SHARE_ENDS_NS: Final = (800_000, 1_400_000, 1_800_000, 1_900_000, BUDGET_NS)
"""For each rank, the time (ns) after the beginning of an iteration at which its share ends."""


class WaitingConnection(Protocol):
    """A connection that waits for its turn to handle requests."""

    def take_turn(self, until_ns: int) -> None:
        """Handle at least one request, and further ones until the clock reads `until_ns` (ns). Requests that are left
        wait for the next turn.
        """


class TurnScheduler:
    """The turns of all connections of an event loop. `call_soon` calls a function in the next iteration."""

    __slots__ = ("_call_soon", "_clock", "_is_scheduled", "_queues", "_used_ns", "is_spent")

    def __init__(self, clock: RequestClock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.is_spent = False
        """Whether received bytes are kept instead of handled now: the budget is used up, or connections wait."""
        self._used_ns = 0
        """The time (ns) in which requests were handled since `_begin` last ran."""
        self._clock = clock
        self._call_soon = call_soon
        self._is_scheduled = False
        self._queues: list[deque[WaitingConnection]] = [deque() for _ in ConnectionRank]

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for a turn now."""
        return sum(map(len, self._queues))

    def end_ns(self, now_ns: int) -> int:
        """The time (ns, the request clock) until which a connection handles the bytes that it has just received."""
        return now_ns + BUDGET_NS - self._used_ns

    def handled(self, began_ns: int) -> None:
        """Count the time in which a connection has handled received bytes, from `began_ns` to the last reading of the
        clock.

        The times of iterations are added up, and `_begin` runs in a new iteration only when their sum has reached the
        budget. So iterations that take less than the budget cost nothing.
        """
        self._used_ns += self._clock.latest_ns - began_ns
        if self._used_ns >= BUDGET_NS and not self.is_spent:
            self.is_spent = True
            self._begin_soon()

    def wait(self, connection: WaitingConnection, rank: int) -> None:
        """Let a connection wait for a turn. It must not wait already."""
        self._queues[rank].append(connection)
        self.is_spent = True
        self._begin_soon()

    def _begin_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        """Begin an iteration of the loop: serve the waiting connections."""
        self._is_scheduled = False
        self._used_ns = 0
        if self.waiting_count:
            began_ns = self._clock.read()
            self._serve(began_ns)
            self._used_ns = self._clock.read() - began_ns
        self.is_spent = self._used_ns >= BUDGET_NS or self.waiting_count > 0
        if self.is_spent:
            self._begin_soon()

    def _serve(self, began_ns: int) -> None:
        """Give turns to the waiting connections by rank, at most one to each connection."""
        clock, queues = self._clock, self._queues
        now_ns = began_ns
        for rank, queue in enumerate(queues):
            is_last = not any(queues[rank + 1 :])
            end_ns = began_ns + (BUDGET_NS if is_last else SHARE_ENDS_NS[rank])
            for count in range(len(queue), 0, -1):
                queue.popleft().take_turn(now_ns + max(QUANTUM_NS, (end_ns - now_ns) // count))
                now_ns = clock.read()
                if now_ns >= end_ns:
                    break
