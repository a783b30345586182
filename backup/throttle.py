"""A limit on the bytes per second that a backup copies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class CopyThrottle:
    """Limits the mean rate of copied bytes."""

    def __init__(
        self, bytes_per_s: float | None, now_s: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """`bytes_per_s`: the limit; None for no limit."""
        self._bytes_per_s = bytes_per_s
        self._now_s = now_s
        self._sleep = sleep
        self._free_s = 0.0
        """The time (s) at which the next bytes may be copied."""

    async def wait_for_bytes(self, size: int) -> None:
        """Wait until `size` more bytes may be copied at the limited rate."""
        if self._bytes_per_s is None:
            return
        now_s = self._now_s()
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + size / self._bytes_per_s
        if begin_s > now_s:
            await self._sleep(begin_s - now_s)
