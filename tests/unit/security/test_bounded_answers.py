"""An answer is bounded in time and in size as a whole, however steadily its bytes arrive."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from moldau.security.bounded_answers import AnswerLimits, limit_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


@contextmanager
def connected(size_max: int, now_s: Callable[[], float], sent: bytes) -> Iterator[HTTPConnection]:
    """A connection whose server has sent these bytes and sends no more; the answer must be there by second 10."""
    ours, theirs = socket.socketpair()
    connection = HTTPConnection("registry")
    connection.sock = ours
    limit_answer(connection, AnswerLimits(size_max, 10, now_s))
    with ours, theirs:
        theirs.sendall(sent)
        connection.request("GET", "/")
        yield connection


def test_an_answer_within_its_limits_is_read() -> None:
    with connected(len(HEAD) + 5, lambda: 0, HEAD + b"hello") as connection:
        assert connection.getresponse().read() == b"hello"


def test_an_answer_that_comes_in_drops_ends_at_its_time() -> None:
    seconds = itertools.count(8)
    with connected(1 << 20, lambda: next(seconds), HEAD + b"he") as connection:
        response = connection.getresponse()
        response.fp.raw._raw = _Drops()  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError, match="in time"):
            response.read()


class _Drops:
    """A server that sends a byte whenever it is read."""

    def readinto(self, buffer: memoryview) -> int:
        buffer[0] = 0x78
        return 1

    def close(self) -> None:
        pass


def test_a_head_that_is_too_long_ends_the_answer() -> None:
    with (
        connected(100, lambda: 0, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200) as connection,
        pytest.raises(ValueError, match="more than 100 bytes"),
    ):
        connection.getresponse()
