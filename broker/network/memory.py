"""The memory of requests and of replies, over all connections of a node: each has a limit, and a rule for the clients
that would block all others at the limit.

Request memory holds the frames that have not arrived whole (`PartialFrame`). A frame's size field alone allocates
nothing: a connection asks for room as bytes arrive, each time about as much as it has received. If there is no room:

    waiting           the connection is not read until there is room; waiting disconnects no
                      client. Room goes alternately to the connection whose frame lacks the fewest
                      bytes and to the one that waits longest, so that neither large nor small frames
                      starve
    favoured          one connection at a time gets the room for its frame nevertheless, so that
                      some frame always completes and releases its room: partial frames cannot
                      deadlock
    large frames      a frame larger than `BUFFER_SIZE` finds no room in the last quarter, and waits in
                      a queue of its own, with a favoured connection of its own: frames of the usual
                      sizes do not wait for those that announce more
    small reads       a connection without a partial frame is read in small pieces: small requests
                      are still served, and little of a large one is buffered

A few buffers are lent to whole frames and reused: their memory is neither cleared nor copied while a frame grows. If
all are lent, or half of the room is used, a frame grows piece by piece.

So the memory is at most `size_max`, a request of each queue, and a small piece for each connection. While a connection
waits, a frame that receives too few bytes is dropped with its connection, the favoured one sooner. Otherwise clients
that stop in the middle of a frame, or that are not read because they take no replies, would block all others.

Reply memory holds the replies from the moment they are made until the kernel has taken them. Slices of files, which the
kernel sends from the page cache, hold none. A connection whose client does not take its replies is not read, so each
connection is bounded by its own limits. For all connections together:

    room      a fetch copies no more records than there is room for, but always one batch
    used up   a connection is not read while its replies wait for an earlier one. A connection that holds memory and
              whose client takes less than `REPLY_STALL_SIZE_MIN` in `REPLY_STALL_MS` is closed, and its memory
              released: its client hardly reads, or the reply that the others wait for is not complete. While there is
              room, no connection is closed
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from moldau.protocol.primitives import Chunk
from moldau.storage.files.file_slice import FileSlice

if TYPE_CHECKING:
    from moldau.broker.config.config import Config

SIZE_MAX_DEFAULT: Final = 1 << 28
"""The limit (bytes) of request memory if the configuration does not set `queued.max.request.bytes`. If one request may
be larger, its maximum size is the limit.
"""
SMALL_SIZE: Final = 1 << 14
"""The size (bytes) up to which a frame gets its memory without asking. While no memory is free, no more than this is
read at once.
"""
BUFFER_SIZE: Final = (1 << 20) + (1 << 14)
"""The size (bytes) of a lent buffer: that of the largest request of a client with default settings, with its header."""
BUFFERS_MAX: Final = 8
RESERVED_DIVISOR: Final = 4
"""A quarter of the memory is reserved for frames of at most `BUFFER_SIZE`."""
PARTIAL_SIZE_FIRST: Final = 1 << 16
"""The first size (bytes) of a growing buffer of a partial frame; it doubles as bytes arrive."""
LENT_FROM_SIZE: Final = 1 << 12
"""The size (bytes) from which on a frame gets a lent buffer."""
GRANTS_AT_ONCE: Final = 128
"""The number of connections that get room in one event loop iteration. Each allocates its buffer, and reads again."""
HEAP_SIZE_MIN: Final = 64
REQUEST_STALL_MS: Final = 10_000
"""While a connection waits for room, each partial frame must receive `REQUEST_STALL_SIZE_MIN` bytes in this period
(ms). Otherwise its connection is closed.
"""
REQUEST_STALL_SIZE_MIN: Final = 1 << 16
FAVOURED_STALL_MS: Final = 1_000
"""The period (ms) in which the favoured frame must receive `FAVOURED_STALL_SIZE_MIN` bytes. It is shorter than the
period of other frames, because they all wait for the favoured one.
"""
FAVOURED_STALL_SIZE_MIN: Final = 1 << 14
REPLY_STALL_MS: Final = 30_000
"""The interval (ms) between checks whether clients take their replies. It is long, because a consumer may process
records before it reads more.
"""
REPLY_STALL_SIZE_MIN: Final = 1 << 16
"""A client that takes fewer bytes than this in `REPLY_STALL_MS` counts as one that does not read.

Without a minimum a client could hold memory without limit by reading a byte from time to time.
"""
_SIZE: Final = struct.Struct(">i").unpack_from


class FrameOwner(Protocol):
    """A connection whose partial frame holds or waits for request memory."""

    received_bytes: int

    @property
    def is_held(self) -> bool:
        """Whether the connection is not read now because requests that it sent earlier are being handled."""

    def room_granted(self, size: int) -> None:
        """Give `size` bytes of room to the connection's partial frame."""

    def close(self, reason: str, level: int) -> None:
        """Close the connection."""


class RoomRequest(NamedTuple):
    """A connection's wait for room: `size` bytes. `lacking_size` bytes of its frame have not arrived."""

    size: int
    lacking_size: int


class RoomQueue:
    """The connections that wait for room for their frames. A connection gets room if the memory in use then is at most
    `limit` bytes. The favoured connection always gets it.
    """

    __slots__ = ("_by_lack", "_numbers", "_takes_oldest", "favoured", "limit", "mark", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: dict[FrameOwner, RoomRequest] = {}
        """The requests for room in order of arrival, by the connections that wait."""
        self._by_lack: list[tuple[int, int, FrameOwner, RoomRequest]] = []
        """A heap of the requests with the bytes that each frame lacks and their numbers. It also has requests that do
        not wait any more, at most about as many as wait.
        """
        self._numbers = count()
        self.favoured: FrameOwner | None = None
        self.mark: tuple[FrameOwner | None, int] = (None, 0)
        """The favoured connection at the last check for stalled frames, and the number of bytes that it had received
        then.
        """
        self._takes_oldest = True

    def may_have(self, owner: FrameOwner, size: int, used_size: int) -> bool:
        """Whether a connection gets `size` bytes of room at once. The favoured connection always does. If there is no
        room and no connection is favoured, this connection becomes the favoured one.
        """
        if used_size + size <= self.limit and (not self.waiting or owner is self.favoured):
            return True
        if self.favoured is None:
            self.favoured = owner
        return self.favoured is owner

    def wait(self, owner: FrameOwner, request: RoomRequest) -> None:
        """Let a connection wait for room."""
        self.waiting[owner] = request
        heap = self._by_lack
        if len(heap) > 2 * len(self.waiting) + HEAP_SIZE_MIN:
            heap[:] = [each for each in heap if self.waiting.get(each[2]) is each[3]]
            heapify(heap)
        heappush(heap, (request.lacking_size, next(self._numbers), owner, request))

    def take(self, used_size: int) -> tuple[FrameOwner, int] | None:
        """Remove the next connection that gets room from the queue. Returns the connection and its room (bytes); None
        if no connection waits, or if there is no room and another connection is favoured.
        """
        waiting = self.waiting
        if not waiting:
            return None
        oldest = self._takes_oldest
        owner = next(iter(waiting)) if oldest else self._next_by_lack()
        size = waiting[owner].size
        if used_size + size > self.limit:
            if self.favoured is not None:
                return None
            self.favoured = owner
        self._takes_oldest = not oldest
        self._remove(owner)
        return owner, size

    def _next_by_lack(self) -> FrameOwner:
        """The waiting connection whose frame lacks the fewest bytes; of several, the oldest."""
        heap = self._by_lack
        while self.waiting.get(heap[0][2]) is not heap[0][3]:
            heappop(heap)
        return heap[0][2]

    def forget(self, owner: FrameOwner) -> bool:
        """Remove a connection from the queue. It is not favoured any more. Returns whether it waited."""
        if self.favoured is owner:
            self.favoured = None
        return self._remove(owner)

    def _remove(self, owner: FrameOwner) -> bool:
        waited = self.waiting.pop(owner, None) is not None
        if not self.waiting:
            self._by_lack.clear()
        return waited


class RequestMemory:
    """Limits the memory of frames that have not arrived whole, and lends them buffers. `size_max`: the limit (bytes)
    over all connections; None for no limit.
    """

    def __init__(self, size_max: int | None, loop: asyncio.AbstractEventLoop) -> None:
        self.size_max = size_max
        self.used_size = 0
        self.is_used_up = False
        self.waits_count = 0
        """The number of times that a connection had to wait for room."""
        self.stalled_count = 0
        """The number of connections that were closed because their frames stalled while others waited."""
        self._limit = 1 << 62 if size_max is None else size_max
        self._loop = loop
        self._held: dict[FrameOwner, int] = {}
        self._lent: dict[FrameOwner, memoryview] = {}
        self._idle: list[memoryview] = []
        self._usual = RoomQueue(self._limit)
        self._larger = RoomQueue(self._limit - self._limit // RESERVED_DIVISOR)
        self._queues = (self._usual, self._larger)
        """The queues for frames of the usual sizes and for larger ones, in the order in which they are served."""
        self._is_serving = False
        self._watch: asyncio.TimerHandle | None = None
        self._favour_watch: asyncio.TimerHandle | None = None
        self._marks: dict[FrameOwner, int] = {}
        """For each connection with a partial frame, the number of bytes that it had received at the last check for
        stalled frames.
        """

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for room now."""
        return sum(len(queue.waiting) for queue in self._queues)

    def hold(self, owner: FrameOwner, size: int) -> None:
        """Count `size` more bytes of memory for the partial frame of a connection."""
        self._held[owner] = self._held.get(owner, 0) + size
        self.used_size += size
        self.is_used_up = self.used_size >= self._limit

    def reserve(self, owner: FrameOwner, size: int, lacking_size: int, frame_size: int) -> bool:
        """Reserve `size` bytes of room for a frame of `frame_size` bytes, of which `lacking_size` have not arrived.

        Returns whether there was room; if not, `room_granted` of the owner is called later.
        """
        queue = self._usual if frame_size <= BUFFER_SIZE else self._larger
        if not queue.may_have(owner, size, self.used_size):
            self.is_used_up = True
            queue.wait(owner, RoomRequest(size, lacking_size))
            self.waits_count += 1
            self._watch_later()
            return False
        self.hold(owner, size)
        return True

    def lend(self, owner: FrameOwner, size: int) -> memoryview | None:
        """Lend a buffer for a frame of `size` bytes, until `release`. Returns None if the frame must grow piece by
        piece.
        """
        if not LENT_FROM_SIZE < size <= BUFFER_SIZE or self._is_waited_for or self.used_size + size > self._limit // 2:
            return None
        if self._idle:
            buffer = self._idle.pop()
        elif len(self._lent) < BUFFERS_MAX:
            buffer = memoryview(bytearray(BUFFER_SIZE))
        else:
            return None
        self._lent[owner] = buffer
        self.hold(owner, size)
        return buffer[:size]

    def release(self, owner: FrameOwner) -> None:
        """Release the room of a frame that is complete or was given up.

        The bytes of a lent buffer may be read until the current callback of the event loop returns.
        """
        size = self._held.pop(owner, 0)
        buffer = self._lent.pop(owner, None)
        if buffer is not None:
            self._idle.append(buffer)
        waited = [queue.forget(owner) for queue in self._queues]
        if not size and not any(waited):
            return
        self.used_size -= size
        self._marks.pop(owner, None)
        self._serve_later()

    def keep(self, size: int) -> None:
        """Count `size` bytes of request memory until `give_back`, for a request that was copied and waits, for example
        to be decoded in a thread.
        """
        self.used_size += size
        self.is_used_up = self.used_size >= self._limit

    def give_back(self, size: int) -> None:
        self.used_size -= size
        self._serve_later()

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._usual.waiting or self._larger.waiting)

    def _serve_later(self) -> None:
        is_waited_for = self._is_waited_for
        self.is_used_up = self.used_size >= self._limit or is_waited_for
        if is_waited_for and not self._is_serving:
            self._is_serving = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Give room to waiting connections as long as there is any, `GRANTS_AT_ONCE` in one event loop iteration."""
        self._is_serving = False
        left = GRANTS_AT_ONCE
        for queue in self._queues:
            while left and (taken := queue.take(self.used_size)):
                left -= 1
                owner, size = taken
                self.hold(owner, size)
                owner.room_granted(size)
        if not left:
            self._serve_later()
        self.is_used_up = self.used_size >= self._limit or self._is_waited_for

    # Stalled frames

    def _watch_later(self) -> None:
        if self._watch is None:
            self._watch = self._loop.call_later(REQUEST_STALL_MS / 1000, self._look)
        if self._favour_watch is None:
            self._favour_watch = self._loop.call_later(FAVOURED_STALL_MS / 1000, self._look_at_favoured)

    def _look(self) -> None:
        self._watch = None
        if not self._is_waited_for:
            self._marks.clear()
            return
        self._watch_later()
        for owner in tuple(self._held):
            mark = self._marks.get(owner)
            received = owner.received_bytes
            if owner.is_held or any(owner in queue.waiting for queue in self._queues):
                self._marks.pop(owner, None)
            elif mark is not None and received - mark < REQUEST_STALL_SIZE_MIN:
                self._give_up(owner)
            else:
                self._marks[owner] = received

    def _look_at_favoured(self) -> None:
        self._favour_watch = None
        if not self._is_waited_for:
            return
        self._watch_later()
        for queue in self._queues:
            favoured, (marked, mark) = queue.favoured, queue.mark
            if favoured is None:
                continue
            if favoured is marked and favoured.received_bytes - mark < FAVOURED_STALL_SIZE_MIN and not favoured.is_held:
                self._give_up(favoured)
            else:
                queue.mark = (favoured, favoured.received_bytes)

    def _give_up(self, owner: FrameOwner) -> None:
        self.stalled_count += 1
        owner.close("its request does not arrive while others wait for its memory", logging.WARNING)


def request_memory_size_max(config: Config) -> int | None:
    """The limit of request memory (bytes) that the configuration sets; None for no limit.

    DIVERGES: Apache Kafka has no limit by default. Here an unset value gives a limit, and -1 gives none.
    """
    if config.settings.is_set("queued.max.request.bytes"):
        size_max = config.integer("queued.max.request.bytes")
        return size_max if size_max > 0 else None
    return max(SIZE_MAX_DEFAULT, config.integer("socket.request.max.bytes"))


class PartialFrame:
    """The bytes that a connection has received and not handled, in `buffer[:size]`. They begin with a frame that has
    not arrived whole, or that waits because the connection is paused. They are moved there from the shared receive
    buffer:

        lent        a reused buffer, if request memory has one free and the frame fits into it
        small       a frame of up to `SMALL_SIZE` gets all that it wants at once, without asking
        growing     a larger one asks for room as its bytes arrive: a claimed size alone allocates next to nothing
        short       there is no room: the connection is not read until request memory grants some

    Further frames may follow in the buffer.
    """

    __slots__ = ("_memory", "_owner", "buffer", "is_short", "size", "wanted")

    def __init__(
        self,
        memory: RequestMemory,
        owner: FrameOwner,
        received: memoryview,
        frame_size_max: int,
        *,
        is_own: bool = False,
    ) -> None:
        """Move received bytes to another buffer. A frame larger than `frame_size_max` is refused later. `is_own`:
        whether the bytes are the end of a buffer that only this connection uses. Then they stay in that buffer if they
        hold a whole frame.
        """
        self._memory = memory
        self._owner = owner
        self.is_short = False
        """Whether there is no room for the rest of the frame."""
        size = self.size = len(received)
        wanted = 4 + _SIZE(received)[0] if size >= 4 else 4
        if wanted - 4 > frame_size_max:
            wanted = 4  # This is enough to refuse the frame after the frames before it are handled.
        self.wanted = wanted
        """The size (bytes) of the whole frame with its size field; 4 as long as the size field has not arrived."""
        if is_own and size >= wanted:
            memory.hold(owner, len(cast("bytearray", received.obj)))
            self.buffer = received
            return
        lent = memory.lend(owner, wanted) if size < wanted else None
        if lent is not None:
            self.buffer = lent
        else:
            if size < wanted <= SMALL_SIZE:
                room = wanted - size
                memory.hold(owner, wanted)
            else:
                memory.hold(owner, size)
                room = self._growth(size) if wanted > size else 0
            self.buffer = memoryview(bytearray(size + room))
        self.buffer[:size] = received

    def ask_for_room(self) -> None:
        """Get room for more bytes, because the buffer is full and the frame is not whole. If there is no room,
        `is_short` is set until `grow` is called.
        """
        self.grow(self._growth(len(self.buffer)))

    def grow(self, size: int) -> None:
        """Add `size` bytes to the buffer. 0 means that there is no room now: `is_short` is set."""
        self.is_short = size == 0
        if size:
            old = self.buffer
            self.buffer = memoryview(bytearray(len(old) + size))
            self.buffer[: len(old)] = old

    def _growth(self, size: int) -> int:
        """The number of bytes by which a buffer of this size may grow; 0 if the frame must wait for room.

        The buffer doubles, or grows by what has not arrived if that is less.
        """
        lacking = self.wanted - size
        room = min(lacking, max(size, PARTIAL_SIZE_FIRST))
        self.is_short = not self._memory.reserve(self._owner, room, lacking, self.wanted)
        return 0 if self.is_short else room


def held_size(pieces: Iterable[Chunk]) -> int:
    """The memory (bytes) of the pieces of a reply."""
    return sum(len(piece) for piece in pieces if type(piece) is not FileSlice)


class ReplyOwner(Protocol):
    """A connection whose replies hold memory."""

    def taken_size(self) -> int:
        """The number of bytes of replies that the client has taken since the connection was made."""

    def close(self, reason: str, level: int) -> None:
        """Close the connection."""

    def abort(self) -> None:
        """Close the transport at once, without sending the bytes that were written before the connection was closed."""


class ReplyMemory:
    """Counts the memory (bytes) of replies that were not sent, over all connections. `size_max` is the limit (bytes),
    -1 for none.
    """

    def __init__(self, size_max: int, loop: asyncio.AbstractEventLoop) -> None:
        self.used_size = 0
        self.aborted_count = 0
        """The number of connections that were closed because their replies were not read."""
        self._limit = 1 << 62 if size_max < 0 else size_max
        self._loop = loop
        self._held: dict[ReplyOwner, int] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._marks: dict[ReplyOwner, int] = {}
        """For each connection that holds reply memory, the number of bytes that its client had taken at the last
        check.
        """

    @property
    def holders_count(self) -> int:
        """The number of connections that hold reply memory now."""
        return len(self._held)

    def room(self) -> int:
        """The number of bytes that may still be copied into replies."""
        return max(self._limit - self.used_size, 0)

    def holds(self, owner: ReplyOwner, size: int) -> None:
        """Set the number of bytes of replies that a connection holds now."""
        self.used_size += size - self._held.get(owner, 0)
        if size:
            self._held[owner] = size
            if self.used_size >= self._limit and self._watch is None:
                self._watch = self._loop.call_later(REPLY_STALL_MS / 1000, self._look)
        elif owner in self._held:
            del self._held[owner]
            self._marks.pop(owner, None)

    def borrow(self, size: int) -> None:
        """Reserve memory for bytes that a thread reads for a reply."""
        self.used_size += size

    def give_back(self, size: int) -> None:
        """Release reserved memory, because the bytes count as held by the connection now, or because the read
        failed.
        """
        self.used_size -= size

    def _look(self) -> None:
        """Check whether reply memory is used up. If so, close the connections whose clients have taken too few bytes
        since the last check.
        """
        self._watch = None
        if self.used_size < self._limit:
            self._marks.clear()
            return
        self._watch = self._loop.call_later(REPLY_STALL_MS / 1000, self._look)
        for owner in tuple(self._held):
            taken_size = owner.taken_size()
            mark = self._marks.get(owner)
            if mark is None or taken_size - mark >= REPLY_STALL_SIZE_MIN:
                self._marks[owner] = taken_size
            elif self.used_size >= self._limit:
                self.aborted_count += 1
                owner.close("its replies do not leave, and there is no room for those of others", logging.WARNING)
                owner.abort()
                self.holds(owner, 0)


def receive_buffer(size: int) -> memoryview:
    """A receive buffer of `size` bytes for a node. Its pages take memory only when bytes first arrive in them; a
    `bytearray` would write zeros into all of them.
    """
    return memoryview(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS))
