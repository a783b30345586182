"""The contents of one file in the page cache and on the platter, and what a crash does to their difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from moldau.protocol.primitives import BytesLike

SECTOR_SIZE = 512
# The kernel writes back on its own what has been dirty for long; here by count, so that memory stays bounded.
PENDING_WRITES_MAX = 4096


@dataclass(slots=True)
class PendingWrite:
    """A pending write of the positions from `start` to `end` (exclusive). If `end` is None, it is a truncation to the
    size `start`. `data` is None as long as the cache still has the bytes.
    """

    start: int
    end: int | None
    data: bytes | None = None


@dataclass(slots=True, eq=False)
class Inode:
    durable: bytearray = field(default_factory=bytearray)
    cache: bytearray = field(default_factory=bytearray)
    pending: list[PendingWrite] = field(default_factory=list)
    modified_ms: int = 0
    linked: bool = True
    hole_start: int | None = None
    """The start (bytes) of the first write that a failed sync dropped. None if no write was dropped, or if the file was
    truncated to that position or below since. For checks."""

    def write(self, data: BytesLike, position: int) -> None:
        end = position + len(data)
        if position < len(self.cache):
            self._keep_own_bytes(position)
        elif position > len(self.cache):
            self.cache.extend(bytes(position - len(self.cache)))
        self.cache[position:end] = data
        self.pending.append(PendingWrite(position, end))
        if len(self.pending) > PENDING_WRITES_MAX:
            half = PENDING_WRITES_MAX // 2
            self._apply(self.pending[:half])
            del self.pending[:half]

    def cut(self, size: int) -> None:
        self._keep_own_bytes(size)
        if size > len(self.cache):
            self.cache.extend(bytes(size - len(self.cache)))
        del self.cache[size:]
        if self.hole_start is not None and size <= self.hole_start:
            self.hole_start = None
        self.pending.append(PendingWrite(size, None))

    def _keep_own_bytes(self, position: int) -> None:
        """Copy the data of pending writes beyond `position` from the cache, which is about to be overwritten there."""
        for write in self.pending:
            if write.end is not None and write.end > position and write.data is None:
                write.data = bytes(self.cache[write.start : write.end])

    def _apply(self, pending: Sequence[PendingWrite]) -> None:
        for write in pending:
            if write.end is None:
                self._extend_durable(write.start)
                del self.durable[write.start :]
            else:
                self._extend_durable(write.start)
                self.durable[write.start : write.end] = self._bytes_of(write)

    def _bytes_of(self, write: PendingWrite) -> bytes | bytearray:
        return self.cache[write.start : write.end] if write.data is None else write.data

    def _extend_durable(self, size: int) -> None:
        if size > len(self.durable):
            self.durable.extend(bytes(size - len(self.durable)))

    def sync(self) -> None:
        self._apply(self.pending)
        self.pending.clear()

    def sync_failed(self, random: Random) -> None:
        kept = []
        for write in self.pending:
            if write.end is None or random.random() < 0.25:
                kept.append(write)
            elif self.hole_start is None or write.start < self.hole_start:
                self.hole_start = write.start
        self._apply(kept)
        self.pending.clear()
        if random.random() < 0.5:
            self.evict()

    def evict(self) -> None:
        """Read all clean pages from the platter again. They may lack data that the cache had, but the file keeps its
        size.
        """
        cache = self.durable + bytes(max(0, len(self.cache) - len(self.durable)))
        for write in self.pending:
            if write.end is None:
                del cache[write.start :]
            else:
                cache.extend(bytes(max(0, write.start - len(cache))))
                cache[write.start : write.end] = self._bytes_of(write)
        self.cache = cache

    def crash(self, random: Random) -> None:
        """Simulate a loss of power: only some of the pending writes reach the platter. The kind of loss is drawn first,
        so that each typical kind is frequent."""
        pending = self._before_lost_cut(random)
        shape = random.random()
        if shape < 0.2:
            survivors = [write for write in pending if write.end is None]
            self._apply(survivors)
        elif shape < 0.4:
            self._apply(pending)
        elif shape < 0.6:
            kept = int(random.random() * (len(pending) + 1))
            self._apply(pending[:kept])
            if kept < len(pending):
                self._tear(pending[kept], random)
        else:
            for write in pending:
                fate = random.random()
                if write.end is None or fate < 0.4:
                    self._apply([write])
                elif fate < 0.7:
                    self._tear(write, random)
        if pending and random.random() < 0.25:  # the size was written, the bytes were not
            self._extend_durable(max(write.end or 0 for write in pending))
        self.pending.clear()
        self.cache = bytearray(self.durable)

    def _before_lost_cut(self, random: Random) -> list[PendingWrite]:
        cuts = [index for index, write in enumerate(self.pending) if write.end is None]
        kept = int(random.random() * (len(cuts) + 1))
        return self.pending[: cuts[kept]] if kept < len(cuts) else list(self.pending)

    def _tear(self, write: PendingWrite, random: Random) -> None:
        if write.end is None:
            return
        data = self._bytes_of(write)
        position = write.start
        while position < write.end:
            sector_end = min((position // SECTOR_SIZE + 1) * SECTOR_SIZE, write.end)
            if random.random() < 0.5:
                self._extend_durable(position)
                self.durable[position:sector_end] = data[position - write.start : sector_end - write.start]
            position = sector_end
