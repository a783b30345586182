"""The memory of requests and replies in malloc's heap. Blocks of up to 4 MiB are reused, and memory that is free after
a peak is returned to the system.

By default glibc returns the end of its heap to the system almost each time that a block of some hundred kilobytes is
freed. The next request then faults each page in again. This process sets two limits: only blocks above 4 MiB are mapped
one by one, and up to 8 MiB at the end of the heap are kept. With these limits, 1.5 million records in LZ4 batches of 1
MB took 1.0 s of CPU instead of 2.6 s.

malloc keeps freed blocks, except at the end of its heap. So memory that a node used once, for example for replies that
were not read, would stay with the process until it ends. Therefore the process returns free memory (malloc_trim) when
it has grown and is idle. The call holds malloc's lock for about 0.1 ms a MiB. Once after each peak this blocks the
event loop for longer than a step may take: 6 to 9 ms for the 59 MiB of 1,000 frames.

The alternatives cost more. Blocks can be mapped one by one (M_MMAP_THRESHOLD of 32 KiB, or frames outside of malloc).
Then each is returned when it is freed, but 64 KiB take 54 µs instead of 4, because their pages are faulted in again for
each request. M_TRIM_THRESHOLD concerns only the end of the heap. glibc cannot trim a part of a heap, and the thread of
the event loop has a single heap. (CPython 3.11, glibc 2.36, two virtual cores.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from moldau.broker.runtime.tasks import Job

CHECK_INTERVAL_MS: Final = 10_000
USED_SIZE_MIN: Final = 1 << 20
"""If the process has grown by this size (bytes) since its start, clients use the node. Only then the bounds of malloc
are set.
"""
GROWN_SIZE_MIN: Final = 16 << 20
"""Free memory is returned again if the process has grown by this size (bytes), from its least size since the last
return. Each call holds malloc's lock for 0.1 ms a MiB.
"""
QUIET_SIZE_MAX: Final = 1 << 20
"""A process that grows by this size (bytes) or more between two checks is not quiet."""


class HeapPort(Protocol):
    """The part of `Process` that `HeapTrimmer` uses."""

    def resident_bytes(self) -> int:
        """The resident memory in bytes. Raises OSError."""

    def keep_blocks(self) -> None:
        """Let malloc keep freed blocks of up to 4 MiB for reuse."""

    def trim_heap(self) -> None:
        """Return the free pages of malloc's heap to the system. Blocks."""


class HeapTrimmer:
    """Sets the bounds of malloc once clients use the process, and returns free memory to the system after peaks."""

    def __init__(self, memory: HeapPort, offload: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        self._memory = memory
        self._offload = offload
        self._least = 1 << 62
        """The least resident memory (bytes) since free memory was last returned."""
        self._latest = 0
        """The resident memory (bytes) at the last check."""
        self._unused: int | None = memory.resident_bytes()
        """The resident memory (bytes) at the start; None once the bounds of malloc are set."""

    def periodic_job(self) -> Job:
        return Job("heap", CHECK_INTERVAL_MS, self.check_memory)

    async def check_memory(self) -> None:
        """Check the memory of the process. When it shows for the first time that clients use the process, set the
        bounds of malloc. If the process has grown and no longer grows, return free memory to the system. Raises
        OSError.
        """
        resident = self._memory.resident_bytes()
        if self._unused is not None and resident - self._unused >= USED_SIZE_MIN:
            self._unused = None
            await self._offload(self._memory.keep_blocks)
        is_quiet = resident - self._latest < QUIET_SIZE_MAX
        self._least = min(self._least, resident)
        self._latest = resident
        if is_quiet and resident - self._least >= GROWN_SIZE_MIN:
            await self._offload(self._memory.trim_heap)
            self._least = self._latest = self._memory.resident_bytes()
