"""The trace of a run, from which its digest is made: which host ran at which time, and the events that were noted."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b

FLUSH_COUNT = 8192
HOSTS_MAX = 256


class Trace:
    """Makes the digest of a run; equal runs have equal digests. With `keep`, callbacks and events are also kept as
    text, to find where two runs differ.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.moments = array("q")  # one for each callback: virtual ns * HOSTS_MAX + host number; the loop appends
        self.lines: list[str] | None = [] if keep else None
        self._hash = blake2b(digest_size=16)
        self._callbacks_flushed = 0

    def flush(self) -> None:
        self._callbacks_flushed += len(self.moments)
        self._hash.update(self.moments.tobytes())
        del self.moments[:]

    def event(self, now_ns: int, host: str, *parts: str | int | bytes | bool | None) -> None:
        """Add an event to the digest. The text of each part must be the same in every process."""
        self.flush()
        line = f"{now_ns} {host} {parts!r}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def callback(self, now_ns: int, host: str, callback: Callable[..., object]) -> None:
        """Add a line about a callback that runs. It is called only if lines are kept, because the digest has the
        callback already.
        """
        owner = getattr(callback, "__self__", None)
        coroutine = getattr(owner, "get_coro", None)
        called = callback if coroutine is None else coroutine()
        name = getattr(called, "__qualname__", type(called).__name__)  # a compiled coroutine has none of its own
        assert self.lines is not None
        self.lines.append(f"{now_ns} {host} {name}")

    @property
    def callbacks(self) -> int:
        return self._callbacks_flushed + len(self.moments)

    def digest(self) -> str:
        self.flush()
        return self._hash.hexdigest()
