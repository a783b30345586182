"""Limits the answers of HTTP servers that this process does not control, such as an identity provider or a schema
registry.

The size and the duration of an answer are limited as a whole, head and body together. The timeout of a socket does not
suffice, because it begins anew with every byte that the server sends.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple, Protocol


class ConnectedSocket(Protocol):
    """The methods of a socket that limiting an answer needs."""

    def gettimeout(self) -> float | None: ...
    def settimeout(self, value: float | None, /) -> None: ...
    def makefile(self, mode: Any, *, buffering: Any) -> Any: ...


class AnswerLimits(NamedTuple):
    size_max: int
    """The maximum size (bytes) of the head and the body together."""
    ends_s: float
    """The time of the clock `now_s` by which the last byte must have arrived."""
    now_s: Callable[[], float]
    """A monotonic clock (seconds)."""


class _LimitedSocket(io.RawIOBase):
    """A socket from which `HTTPResponse` reads an answer, and which enforces the limits."""

    def __init__(self, connected: ConnectedSocket, limits: AnswerLimits) -> None:
        self._socket = connected
        self._raw = connected.makefile("rb", buffering=0)
        self._pause_s = connected.gettimeout()
        """The maximum time (seconds) without a byte from the server; None if only the time of the whole answer is
        limited.
        """
        self._limits = limits
        self._size = 0

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._limits.ends_s - self._limits.now_s()
        if left_s <= 0:
            raise TimeoutError("the answer did not arrive in time")
        self._socket.settimeout(left_s if self._pause_s is None else min(left_s, self._pause_s))
        count: int | None = self._raw.readinto(buffer)
        self._size += count or 0
        if self._size > self._limits.size_max:
            raise ValueError(f"the answer has more than {self._limits.size_max} bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def limit_answer(connection: HTTPConnection, limits: AnswerLimits) -> None:
    """Apply limits to the answers on a connection. Reading an answer that exceeds a limit raises TimeoutError or
    ValueError.
    """

    def response(connected: ConnectedSocket, *arguments: Any, **named: Any) -> HTTPResponse:
        return HTTPResponse(_LimitedSocket(connected, limits), *arguments, **named)  # type: ignore[arg-type]

    connection.response_class = response  # type: ignore[assignment]
