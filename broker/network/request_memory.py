"""Request memory: what frames that have not arrived whole may hold, over all connections of a node.

A claimed size costs nothing: a connection asks for room as bytes arrive, each time about as much as it has. While there
is room it gets it. Where there is none:

    it waits          the connection is not read until there is room; nobody who waits is disconnected. In turns the
                      one that lacks least is next, and the one that waits longest: neither many large frames nor many
                      small ones keep others out
    it is favoured    one connection at a time gets what its frame needs all the same, so that some frame always ends
                      and gives its room back: frames that hold a part each cannot block one another for good
    others read less  a connection without a partial frame is read in small pieces: small requests are served on, and
                      what is left over of a large one is little

A few buffers are lent to whole frames and used again and again: memory that was touched before, neither cleared nor
copied while a frame grows. Where all are lent, or half of the room is used, a frame grows piece by piece.

So at most `size_max`, one request, and a small piece a connection are held. While somebody waits, a frame that hardly
moves is given up with its connection, the favoured one sooner: peers that stop in the middle must not stop everybody,
nor those that are not read because they take no replies, or let too many wait.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from broker.config.config import Config
    from broker.network.connection import Connection

SIZE_MAX_DEFAULT: Final = 1 << 28
"""Where nobody has set `queued.max.request.bytes`, unless one request may be larger."""
SMALL_SIZE: Final = 1 << 14
"""A frame up to this size need not ask; while there is no room nothing larger is read at once."""
BUFFER_SIZE: Final = (1 << 20) + (1 << 14)
"""Of a buffer that is lent: what clients send at most unless told otherwise, and its head."""
BUFFERS_MAX: Final = 8
LENT_FROM_SIZE: Final = 1 << 12
"""A frame up to this size is not worth a buffer."""
STALL_MS: Final = 10_000
"""While somebody waits, a frame must bring `STALL_SIZE_MIN` bytes in each such time, or end."""
STALL_SIZE_MIN: Final = 1 << 16
FAVOURED_STALL_MS: Final = 1_000
"""The favoured frame keeps everybody from having room: it must bring more in less time."""
FAVOURED_STALL_SIZE_MIN: Final = 1 << 14


class Wish(NamedTuple):
    """What somebody waits for, and how much its frame lacks in all."""

    size: int
    lacking_size: int


class RequestMemory:
    """`size_max` of None is no limit."""

    def __init__(self, size_max: int | None, loop: asyncio.AbstractEventLoop) -> None:
        self.size_max = size_max
        self.used_size = 0
        self.is_used_up = False
        self.waits_count = 0
        """How often a connection had to wait."""
        self.stalled_count = 0
        """Connections that were closed because their frames did not move while others waited."""
        self._limit = 1 << 62 if size_max is None else size_max
        self._loop = loop
        self._held: dict[Connection, int] = {}
        self._lent: dict[Connection, memoryview] = {}
        self._idle: list[memoryview] = []
        self._waiting: dict[Connection, Wish] = {}
        self._takes_oldest = False
        self._favoured: Connection | None = None
        self._is_serving = False
        self._watch: asyncio.TimerHandle | None = None
        self._favour_watch: asyncio.TimerHandle | None = None
        self._favoured_mark: tuple[Connection | None, int] = (None, 0)
        self._marks: dict[Connection, int] = {}
        """Bytes that holders had received at the last look; forgotten with the frame."""

    @property
    def waiting_count(self) -> int:
        """Connections that wait now."""
        return len(self._waiting)

    def hold(self, connection: Connection, size: int) -> None:
        """Count bytes that are here already."""
        self._held[connection] = self._held.get(connection, 0) + size
        self.used_size += size
        self.is_used_up = self.used_size >= self._limit

    def take(self, connection: Connection, size: int, lacking_size: int) -> bool:
        """Room for some of what a frame lacks; else the connection's `room_granted` is called when there is."""
        if not self._may_have(connection, size):
            self.is_used_up = True
            self._waiting[connection] = Wish(size, lacking_size)
            self.waits_count += 1
            self._watch_later()
            return False
        self.hold(connection, size)
        return True

    def lend(self, connection: Connection, size: int) -> memoryview | None:
        """So many bytes for the whole of a frame, until `let_go`; None where it must grow piece by piece."""
        if not LENT_FROM_SIZE < size <= BUFFER_SIZE or self._waiting or self.used_size + size > self._limit // 2:
            return None
        if self._idle:
            buffer = self._idle.pop()
        elif len(self._lent) < BUFFERS_MAX:
            buffer = memoryview(bytearray(BUFFER_SIZE))
        else:
            return None
        self._lent[connection] = buffer
        self.hold(connection, size)
        return buffer[:size]

    def let_go(self, connection: Connection) -> None:
        """Its frame has arrived whole, or never will. A buffer that was lent is free once this callback returns."""
        size = self._held.pop(connection, 0)
        buffer = self._lent.pop(connection, None)
        if buffer is not None:
            self._idle.append(buffer)
        if not size and connection not in self._waiting:
            return
        self.used_size -= size
        self._waiting.pop(connection, None)
        self._marks.pop(connection, None)
        if self._favoured is connection:
            self._favoured = None
        self._serve_later()

    def keep(self, size: int) -> None:
        """Count bytes of requests that wait to be examined."""
        self.used_size += size
        self.is_used_up = self.used_size >= self._limit

    def give_back(self, size: int) -> None:
        self.used_size -= size
        self._serve_later()

    def _serve_later(self) -> None:
        self.is_used_up = self.used_size >= self._limit or bool(self._waiting)
        if self._waiting and not self._is_serving:
            self._is_serving = True
            self._loop.call_soon(self._serve)

    def _may_have(self, connection: Connection, size: int) -> bool:
        if self.used_size + size <= self._limit and (not self._waiting or connection is self._favoured):
            return True
        if self._favoured is None:
            self._favoured = connection
        return self._favoured is connection

    def _serve(self) -> None:
        """Give out the room that there is, first come, first served."""
        self._is_serving = False
        waiting = self._waiting
        while waiting:
            connection = self._next()
            size = waiting[connection].size
            if self.used_size + size > self._limit:
                if self._favoured is not None:
                    break
                self._favoured = connection
            del waiting[connection]
            self.hold(connection, size)
            connection.room_granted(size)
        self.is_used_up = self.used_size >= self._limit or bool(waiting)

    def _next(self) -> Connection:
        waiting = self._waiting
        self._takes_oldest = not self._takes_oldest
        if self._takes_oldest:
            return next(iter(waiting))
        return min(waiting, key=lambda connection: waiting[connection].lacking_size)

    # Frames that do not move

    def _watch_later(self) -> None:
        if self._watch is None:
            self._watch = self._loop.call_later(STALL_MS / 1000, self._look)
        if self._favour_watch is None:
            self._favour_watch = self._loop.call_later(FAVOURED_STALL_MS / 1000, self._look_at_favoured)

    def _look(self) -> None:
        self._watch = None
        if not self._waiting:
            self._marks.clear()
            return
        self._watch_later()
        for connection in tuple(self._held):
            mark = self._marks.get(connection)
            received = connection.received_bytes
            if connection in self._waiting or connection.is_held:
                self._marks.pop(connection, None)
            elif mark is not None and received - mark < STALL_SIZE_MIN:
                self._give_up(connection)
            else:
                self._marks[connection] = received

    def _look_at_favoured(self) -> None:
        self._favour_watch = None
        if not self._waiting:
            return
        self._watch_later()
        favoured, (marked, mark) = self._favoured, self._favoured_mark
        if favoured is None:
            return
        if favoured is marked and favoured.received_bytes - mark < FAVOURED_STALL_SIZE_MIN and not favoured.is_held:
            self._give_up(favoured)
        else:
            self._favoured_mark = (favoured, favoured.received_bytes)

    def _give_up(self, connection: Connection) -> None:
        self.stalled_count += 1
        connection.close("its request does not arrive while others wait for its memory", logging.WARNING)


def request_memory_size_max(config: Config) -> int | None:
    """Bytes as `queued.max.request.bytes` says.

    DIVERGES: Apache Kafka sets no bound unless told to. Where nobody has set it there is one here; -1 takes it away.
    """
    if config.settings.is_set("queued.max.request.bytes"):
        size_max = config.integer("queued.max.request.bytes")
        return size_max if size_max > 0 else None
    return max(SIZE_MAX_DEFAULT, config.integer("socket.request.max.bytes"))
