"""A frame that has not arrived whole: its bytes move from the shared receive buffer to a buffer of its own.

    lent        a reused buffer, where request memory has one free and the frame fits into it
    small       a frame of up to `SMALL_SIZE` gets all that it wants at once, without asking
    growing     a larger one asks for room as its bytes arrive: a claimed size alone allocates next to nothing
    short       there is no room: the connection is not read until request memory grants some

Whole frames may follow in the buffer: a paused connection keeps all received bytes that it has not handled.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.broker.network.request_memory import SMALL_SIZE, FrameOwner, RequestMemory

PARTIAL_SIZE_FIRST: Final = 1 << 16
"""The first size (bytes) of the buffer of a partial frame; it doubles as bytes arrive."""

_SIZE: Final = struct.Struct(">i").unpack_from


class PartialFrame:
    """The received bytes `buffer[:size]` of a connection, from the beginning of a frame on."""

    __slots__ = ("_memory", "_owner", "buffer", "is_short", "size", "wanted")

    def __init__(self, memory: RequestMemory, owner: FrameOwner, received: memoryview, frame_size_max: int) -> None:
        """Move received bytes to a buffer of their own. A frame larger than `frame_size_max` is refused later."""
        self._memory = memory
        self._owner = owner
        self.is_short = False
        """Whether there is no room for the rest of the frame."""
        size = self.size = len(received)
        wanted = 4 + _SIZE(received)[0] if size >= 4 else 4
        if wanted - 4 > frame_size_max:
            wanted = 4  # This is enough to refuse the frame after the frames before it are handled.
        self.wanted = wanted
        """The bytes of the whole frame; before the frame's size has arrived, the bytes of the size field."""
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
        """Ask for room: the buffer is full, and the frame is not whole. Grow, or be short until `grow` is called."""
        self.grow(self._take(len(self.buffer)))

    def grow(self, size: int) -> None:
        """Add this many bytes of room; 0 where there is none now."""
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
