"""A frame that has not arrived whole: its bytes leave the shared receive buffer for one of its own.

    lent        a buffer that is used again and again, where request memory has one free and the frame fits into it
    small       a frame of up to `SMALL_SIZE` gets all that it wants at once, without asking
    growing     a larger one asks for room as its bytes arrive: a claimed size alone allocates next to nothing
    short       there is no room: the connection is not read until request memory grants some

The beginning of a frame may be followed by whole frames here: a connection that stops in the midst of what arrived
keeps all that is left of it.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.network.request_memory import SMALL_SIZE, FrameOwner, RequestMemory

PARTIAL_SIZE_FIRST: Final = 1 << 16
"""A partial frame gets this much at first and doubles as bytes arrive."""

_SIZE: Final = struct.Struct(">i").unpack_from


class PartialFrame:
    """Bytes `buffer[:size]` of a connection, from the beginning of a frame on."""

    __slots__ = ("_memory", "_owner", "buffer", "is_short", "size", "wanted")

    def __init__(self, memory: RequestMemory, owner: FrameOwner, received: memoryview, frame_size_max: int) -> None:
        """Move what was received to a buffer of its own; a size above `frame_size_max` is refused later."""
        self._memory = memory
        self._owner = owner
        self.is_short = False
        """There is no room for the rest of the frame yet."""
        size = self.size = len(received)
        wanted = 4 + _SIZE(received)[0] if size >= 4 else 4
        if wanted - 4 > frame_size_max:
            wanted = 4  # enough to refuse it when the frames before it have been handled
        self.wanted = wanted
        """Bytes that make a whole frame; before the size of the frame has arrived, bytes that make the size."""
        lent = memory.lend(owner, wanted) if size < wanted else None
        if lent is not None:
            self.buffer = lent
        else:
            if size < wanted <= SMALL_SIZE:
                room = wanted - size
                memory.hold(owner, wanted)
            else:
                memory.hold(owner, size)
                room = self._take(size) if wanted > size else 0
            self.buffer = memoryview(bytearray(size + room))
        self.buffer[:size] = received

    def ask_for_room(self) -> None:
        """The buffer is full, and the frame is not whole: grow, or be short until `grow` is called."""
        self.grow(self._take(len(self.buffer)))

    def grow(self, size: int) -> None:
        """Give the frame this many bytes of room; 0: there is none now."""
        self.is_short = size == 0
        if size:
            old = self.buffer
            self.buffer = memoryview(bytearray(len(old) + size))
            self.buffer[: len(old)] = old

    def _take(self, size: int) -> int:
        """The number of bytes by which a buffer of this size may grow; 0 where the frame must wait for room.

        The buffer doubles, or grows by what has not arrived where that is less.
        """
        lacking = self.wanted - size
        room = min(lacking, max(size, PARTIAL_SIZE_FIRST))
        self.is_short = not self._memory.take(self._owner, room, lacking)
        return 0 if self.is_short else room
