"""Accepts connections on the sockets of an address. Accepting can be paused, and it pauses by itself when the process
has no file descriptor left.

asyncio's own server cannot be paused. If the process has no descriptor left, that server tries again at once or closes
connections. This acceptor waits for a while, and leaves some descriptors for the files of logs: a delayed client does
less harm than a log that cannot open its next segment.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from functools import partial
from typing import Final, Protocol

log = logging.getLogger("moldau.listener")

LISTEN_BACKLOG: Final = 512
ACCEPTS_MAX: Final = 4
"""The maximum number of connections that one event loop iteration accepts: each takes 50 us and may send a request at
once.
"""
QUICK_ITERATION_S: Final = 0.001
"""If the previous event loop iteration that accepted connections began less than this time (seconds) ago, only one
accept is tried: a second one would find no connection.
"""
RETRY_S: Final = 1.0
"""The time (seconds) for which nothing is accepted after an accept failed for lack of descriptors or memory."""
FILE_DESCRIPTORS_DIVISOR: Final = 8
"""The divisor that gives the part of all file descriptors that is kept for files."""
DELAYED_CLOSES_MAX: Final = 1000
"""The maximum number of refused connections that stay open for a delay; further ones are closed at once."""
DESCRIPTOR_CHECK_MARGIN: Final = 64
"""When fewer descriptors than this are left for clients, `_leave_some_for_files` is called before each accept."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AcceptPolicy(Protocol):
    """Decides whether connections are accepted and whether they stay. A listener implements it."""

    @property
    def send_buffer_size(self) -> int:
        """SO_SNDBUF of accepted sockets, in bytes; negative for the kernel's default."""

    def may_accept(self) -> bool:
        """Whether one more connection may be accepted now. If not, the policy calls `Acceptor.release` later."""

    def accepted(self, address: str) -> float | None:
        """Count an accepted connection. Returns None if it may stay; otherwise the time (seconds) after which it is
        closed without an answer.
        """

    def gone(self, address: str) -> None:
        """Note that an accepted connection ended before its protocol was made."""

    def accept_failed(self) -> None:
        """Note that an accept failed, because the process had no descriptor or no memory left."""

    def protocol_for(self, address: str) -> asyncio.BaseProtocol:
        """Make the protocol of an accepted connection that may stay."""


class Acceptor(Protocol):
    """Accepts connections on a bound address, once `open` was called."""

    def open(self) -> None:
        """Begin to accept."""

    def release(self) -> None:
        """Continue to accept, because the policy may allow another connection now."""

    def close(self) -> None:
        """Stop accepting, and close the sockets."""


async def bound_sockets(loop: asyncio.AbstractEventLoop, host: str | None, port: int) -> list[socket.socket]:
    """Sockets that are bound to an address: one for each IP address that the host name has. Raises OSError."""
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}: {error.strerror}") from None
    sockets: list[socket.socket] = []
    for family, kind, number, _, address in dict.fromkeys(found):
        try:
            bound = socket.socket(family, kind, number)
        except OSError:
            continue  # The kernel does not support this address family.
        sockets.append(bound)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        try:
            bound.bind(address)
        except OSError as error:
            for each in sockets:
                each.close()
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {error.strerror}") from None
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host or '*'}:{port}: no such address here")
    return sockets


class SocketAcceptor:
    """An acceptor that uses the kernel's sockets. `descriptors_max` is the process's limit on file descriptors."""

    def __init__(self, loop: asyncio.AbstractEventLoop, policy: AcceptPolicy, descriptors_max: int) -> None:
        self._loop = loop
        self._policy = policy
        self._last_descriptor = descriptors_max - descriptors_max // FILE_DESCRIPTORS_DIVISOR
        self._sockets: list[socket.socket] = []
        self._latest_descriptor = self._last_descriptor
        self._latest_iteration_s = 0.0
        self._is_reading = False
        self._is_exhausted = False
        self._retry: asyncio.TimerHandle | None = None
        self._beginnings: dict[asyncio.Task[None], socket.socket] = {}
        """The tasks that connect accepted sockets to their protocols, in the order of their accepts."""
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        """The accepted sockets that are refused, each with the timer that closes it without an answer."""

    async def bind(self, host: str | None, port: int) -> None:
        """Bind the address, on each IP address that the host name has. Raises OSError."""
        self._sockets = await bound_sockets(self._loop, host, port)
        for each in self._sockets:
            if self._policy.send_buffer_size >= 0:  # Accepted sockets inherit this option.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._policy.send_buffer_size)

    def open(self) -> None:
        for each in self._sockets:
            each.listen(LISTEN_BACKLOG)
        self.release()

    def release(self) -> None:
        if not self._is_reading and self._retry is None:
            self._is_reading = True
            for each in self._sockets:
                self._loop.add_reader(each.fileno(), self._accept, each)

    def close(self) -> None:
        self._hold_back()
        if self._retry is not None:
            self._retry.cancel()
        for each in self._sockets:
            each.close()
        self._sockets.clear()
        for beginning in tuple(self._beginnings):
            beginning.cancel()
        for refused, timer in self._refused.items():
            timer.cancel()
            refused.close()
        self._refused.clear()

    def _hold_back(self) -> None:
        if self._is_reading:
            self._is_reading = False
            for each in self._sockets:
                self._loop.remove_reader(each.fileno())

    def _accept(self, server: socket.socket) -> None:
        now_s = self._loop.time()
        is_quick = now_s - self._latest_iteration_s < QUICK_ITERATION_S
        self._latest_iteration_s = now_s
        for _ in range(1 if is_quick else ACCEPTS_MAX):
            if not self._policy.may_accept():
                self._hold_back()
                return
            try:
                if self._latest_descriptor >= self._last_descriptor - DESCRIPTOR_CHECK_MARGIN:
                    self._leave_some_for_files()
                accepted, address = server.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._exhausted(error)
                return
            self._latest_descriptor = accepted.fileno()
            self._recovered()
            self._enter(accepted, address[0])

    def _leave_some_for_files(self) -> None:
        """Raise OSError (EMFILE) if the free descriptors are kept for files.

        A new descriptor has the lowest free number, so its number shows about how many are in use. The caller first
        looks at the number of the latest connection's descriptor. If files took many descriptors since, only the next
        connection shows it.
        """
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.fileno() >= self._last_descriptor:
                raise OSError(errno.EMFILE, "the rest of the descriptors is for files")

    def _enter(self, accepted: socket.socket, host: str) -> None:
        closing_s = self._policy.accepted(host)
        if closing_s is not None:
            self._refuse(accepted, closing_s)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._begin(accepted, host))
        self._beginnings[task] = accepted
        task.add_done_callback(self._begun)

    def _refuse(self, accepted: socket.socket, closing_s: float) -> None:
        """Close a connection that is refused: at once, or after a delay that slows its client down."""
        if closing_s <= 0 or len(self._refused) >= DELAYED_CLOSES_MAX:
            accepted.close()
            return

        def close() -> None:
            del self._refused[accepted]
            accepted.close()

        self._refused[accepted] = self._loop.call_later(closing_s, close)

    def _begun(self, task: asyncio.Task[None]) -> None:
        accepted = self._beginnings.pop(task)
        if task.cancelled():  # If the task was cancelled before its first step, no protocol closes the socket.
            accepted.close()

    async def _begin(self, accepted: socket.socket, host: str) -> None:
        try:
            await self._loop.connect_accepted_socket(partial(self._policy.protocol_for, host), accepted)
        except OSError as error:
            log.debug("a connection from %s ended before it began: %s", host, error)
            accepted.close()
            self._policy.gone(host)

    def _exhausted(self, error: OSError) -> None:
        self._policy.accept_failed()
        if not self._is_exhausted:
            self._is_exhausted = True
            log.error("no new connections for now: %s", error)
        self._hold_back()
        self._retry = self._loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.release()

    def _recovered(self) -> None:
        if self._is_exhausted:
            self._is_exhausted = False
            log.info("connections are accepted again")
