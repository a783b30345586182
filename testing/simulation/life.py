"""One run of a host's process, called a life, and the clock of the host during it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from moldau.testing.simulation.trace import HOSTS_MAX

if TYPE_CHECKING:
    from moldau.testing.simulation.handles import SimulatedHandle

NANOSECONDS = 1_000_000_000


class BlockingTimeMeter(Protocol):
    """A source of the time that blocking calls take: the disk of a host."""

    @property
    def cost_ns(self) -> int: ...

    def take_cost_ns(self) -> int: ...


class Life:
    """One run of a host's process, from its start to its crash, with the host's clock."""

    __slots__ = (
        "alive",
        "clock_offset_ns",
        "clock_rate_ppm",
        "exception_handler",
        "held",
        "host",
        "host_number",
        "listed",
        "meter",
        "number",
        "queue",
        "reading_ns",
        "spent_ns",
    )

    def __init__(self, host: str, host_number: int, number: int, meter: BlockingTimeMeter) -> None:
        assert host_number < HOSTS_MAX
        self.host = host
        self.host_number = host_number
        self.number = number
        self.meter = meter
        self.alive = True
        self.queue: deque[SimulatedHandle] = deque()
        self.listed = False  # Whether the loop has this life in its ready queue.
        self.held = 0  # The reasons for which the life does not run: blocked, paused.
        self.reading_ns = 0
        """The time (ns) that each reading of the precise clock takes. A request reads it at its beginning and its end,
        so this is the time that a request takes.
        """
        self.spent_ns = 0
        """The time (ns) that the current callback has taken so far. The host is blocked for this time after the
        callback.
        """
        self.clock_rate_ppm = 0
        self.clock_offset_ns = 0
        self.exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    def local_ns(self, now_ns: int) -> int:
        return now_ns + now_ns * self.clock_rate_ppm // 1_000_000 + self.clock_offset_ns

    def read_ns(self, now_ns: int) -> int:
        """Read the host's precise clock (ns). It includes the time that the running callback has taken so far."""
        self.spent_ns += self.reading_ns
        return self.local_ns(now_ns + self.spent_ns)

    def take_cost_ns(self) -> int:
        """Return the time (ns) for which the callback that has just ended blocks the host, and reset the count."""
        spent_ns, self.spent_ns = self.spent_ns, 0
        return spent_ns + self.meter.take_cost_ns()

    def true_ns(self, local_ns: int) -> int:
        """The first virtual time (ns) at which the host's clock shows at least `local_ns`."""
        rate = 1_000_000 + self.clock_rate_ppm
        return -(-(local_ns - self.clock_offset_ns) * 1_000_000 // rate)

    def context(self) -> Context:
        """A new contextvars context in which `LIFE` is this life: the run of a host's process from its start to its
        crash.
        """
        context = Context()
        context.run(LIFE.set, self)
        return context


LIFE: ContextVar[Life] = ContextVar("life")
