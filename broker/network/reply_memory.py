"""Reply memory: the bytes of replies that were not sent yet, over all connections of a node.

A reply holds memory from the moment it is made until the kernel has taken it. Slices of files, which the kernel sends
from the page cache, hold none. A connection whose client does not take its replies is not read, so each connection is
bounded by its own limits. This module bounds the memory of all connections together:

    room      a fetch copies no more records than there is room for, but always one batch
    used up   a connection is not read while its replies wait for an earlier one. A connection that holds memory and
              whose client takes less than `TAKEN_SIZE_MIN` in `STALL_MS` is closed, and its memory released: its client
              hardly reads, or the reply that the others wait for is not complete. While there is room, none is closed

"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from moldau.protocol.primitives import Chunk
from moldau.storage.files.file_slice import FileSlice

STALL_MS: Final = 30_000
"""The time (ms) between two checks, so that a consumer may process records for a while before it reads more."""
TAKEN_SIZE_MIN: Final = 1 << 16
"""The bytes below which a client counts as one that does not read in `STALL_MS`.

Otherwise a client could hold memory without limit by reading a byte from time to time.
"""


def held_size(pieces: Iterable[Chunk]) -> int:
    """The memory (bytes) of the pieces of a reply."""
    return sum(len(piece) for piece in pieces if type(piece) is not FileSlice)


class ReplyOwner(Protocol):
    """The connection whose replies hold memory."""

    def taken_size(self) -> int:
        """The bytes of replies that were sent since the connection was made."""

    def close(self, reason: str, level: int) -> None:
        """End the connection."""

    def abort(self) -> None:
        """Drop the bytes that were written before the connection was closed."""


class ReplyMemory:
    """Counts the bytes of replies that have not left, over all connections. `size_max`: bytes; -1 for no limit."""

    def __init__(self, size_max: int, loop: asyncio.AbstractEventLoop) -> None:
        self.used_size = 0
        self.aborted_count = 0
        """The number of connections that were closed because their replies were not read."""
        self._limit = 1 << 62 if size_max < 0 else size_max
        self._loop = loop
        self._held: dict[ReplyOwner, int] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._marks: dict[ReplyOwner, int] = {}
        """For each connection, the bytes that its client had taken at the last check; removed when the connection holds
        nothing.
        """

    @property
    def holders_count(self) -> int:
        """The number of connections that hold memory now."""
        return len(self._held)

    def room(self) -> int:
        """The bytes that may still be copied."""
        return max(self._limit - self.used_size, 0)

    def holds(self, owner: ReplyOwner, size: int) -> None:
        """Note how many bytes of replies a connection holds now."""
        self.used_size += size - self._held.get(owner, 0)
        if size:
            self._held[owner] = size
            if self.used_size >= self._limit and self._watch is None:
                self._watch = self._loop.call_later(STALL_MS / 1000, self._look)
        elif owner in self._held:
            del self._held[owner]
            self._marks.pop(owner, None)

    def borrow(self, size: int) -> None:
        """Reserve bytes that a thread reads for a reply."""
        self.used_size += size

    def give_back(self, size: int) -> None:
        """Release reserved bytes: the reply holds them now, or the read failed."""
        self.used_size -= size

    def _look(self) -> None:
        """If there is no room, close the connections whose clients have read too few bytes since the last check."""
        self._watch = None
        if self.used_size < self._limit:
            self._marks.clear()
            return
        self._watch = self._loop.call_later(STALL_MS / 1000, self._look)
        for owner in tuple(self._held):
            taken_size = owner.taken_size()
            mark = self._marks.get(owner)
            if mark is None or taken_size - mark >= TAKEN_SIZE_MIN:
                self._marks[owner] = taken_size
            elif self.used_size >= self._limit:
                self.aborted_count += 1
                owner.close("its replies do not leave, and there is no room for those of others", logging.WARNING)
                owner.abort()
                self.holds(owner, 0)
