"""The event loop's interface to the thread that sends parts of files (`file_sender.py`)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from moldau.broker.runtime import file_sender

log = logging.getLogger("moldau.connection")

TURN_SIZE_MAX: Final = 1 << 18
"""The number of bytes that the thread sends through one connection before it turns to the next: as many as the event
loop sends in one iteration.
"""
IN_MEMORY: Final = -1
"""The descriptor in a `Part` that holds bytes in memory."""

Part: TypeAlias = tuple[object, int, int, int]
"""A part of a file or bytes in memory, as `FileSender.send` takes it."""


class Sender(Protocol):
    """The interface of `FileSender`, compiled or not."""

    def send(self, owner: object, socket: int, parts: list[Part]) -> None: ...
    def release(self, socket: int) -> None: ...
    def ended(self) -> Sequence[tuple[Any, int, int]]: ...
    def fileno(self) -> int: ...
    def stop(self) -> None: ...


class HandOverOwner(Protocol):
    """The owner of parts that were handed over to the thread."""

    def handed_over_ended(self, sent: int, status: int) -> None:
        """Continue after the thread has ended a job of this owner. `sent` is the number of bytes sent, and `status` is
        that of `file_sender.EndedJob`.
        """


class FileSending:
    """The event loop's interface to the thread that sends files. The thread starts at the first `send`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Callable[[int], Sender]) -> None:
        self._loop = loop
        self._start: Callable[[int], Sender] | None = start
        """Starts the thread; None once that was tried."""
        self._sender: Sender | None = None
        self._is_closed = False

    def send(self, owner: HandOverOwner, socket: int, parts: list[Part]) -> bool:
        """Send parts in order, and call `owner.handed_over_ended` when the job has ended. Returns False in the rare
        case that the thread could not be started. Until the owner is called, nothing else may be written to the socket.
        After the first call the thread owns the descriptor, and only `release` closes it.
        """
        sender = self._sender or self._started()
        if sender is None or self._is_closed:
            return False
        sender.send(owner, socket, parts)
        return True

    def release(self, socket: int) -> None:
        """End the job of a connection that is closed, and close the descriptor."""
        if self._sender is not None:
            self._sender.release(socket)

    def close(self) -> None:
        """End the thread. Bytes that were not sent are dropped."""
        self._start = None
        self._is_closed = True
        if self._sender is not None:
            self._loop.remove_reader(self._sender.fileno())
            self._sender.stop()
            self._sender.ended()  # Their owners are dropped: they refer to this object.

    def _started(self) -> Sender | None:
        start, self._start = self._start, None
        if start is None:
            return None
        try:
            self._sender = start(TURN_SIZE_MAX)
        except OSError as error:
            log.warning("the event loop sends all files, because a thread cannot be started: %s", error)
            return None
        self._loop.add_reader(self._sender.fileno(), self._ended)
        return self._sender

    def _ended(self) -> None:
        if self._sender is not None:
            for owner, sent, status in self._sender.ended():
                owner.handed_over_ended(sent, status)


def file_sending(loop: asyncio.AbstractEventLoop) -> FileSending | None:
    """Make the interface to the thread that sends files. None if the event loop sends files itself, because the system
    is not Linux, or because the thread's code is not compiled.
    """
    is_compiled = not str(file_sender.__file__).endswith(".py")
    return FileSending(loop, file_sender.FileSender) if is_compiled and file_sender.HAS_EPOLL else None


def status_text(status: int) -> str:
    """The meaning of the status of an ended job, for the log."""
    if status == file_sender.SHORT:
        return "the file has become shorter than what was promised of it"
    return errno.errorcode.get(status, f"error {status}")
