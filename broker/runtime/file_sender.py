"""A thread that sends parts of files to sockets. `file_sender.c` is the same in compiled form, without the interpreter
lock.

    the loop     ──send, release──▶ orders ──▶ the thread
    the thread   ──▶ ended jobs ──ended──▶ the loop

A job is what is sent through one socket in order: bytes and parts of files. The jobs of all sockets take turns of
`turn_size_max` bytes. A job whose socket is full has no turn until epoll reports the socket as writable. The thread
owns a socket that was given to it: nothing else writes to the socket while a job is open, and only the thread closes
it. So the number of its descriptor cannot be that of another connection while the thread still uses it.

This Python form holds the interpreter lock between its system calls. It is the reference for the tests of the compiled
form: a broker whose hot path is not compiled sends files from its event loop.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, TypeAlias

from moldau.protocol.late_tuple import NamedTuple

COLD: Final = -1
"""The status of a job whose next bytes are not in the page cache."""
SHORT: Final = -2
"""The status of a job whose file became shorter than the part that was to be sent."""
HAS_EPOLL: Final = sys.platform == "linux"
CACHED_FOR_S: Final = 1.0
"""The time (seconds) for which a part counts as being in the page cache after the last check, or after it was handed
over.
"""
SAMPLE_DISTANCE: Final = 128 << 10

Part: TypeAlias = tuple[object, int, int, int]
"""A part of a file: the object that keeps the file open, its descriptor, the position and the size in bytes. Or bytes
in memory: the bytes, -1, 0 and 0. The first element is kept until the job has ended.
"""


class _Job:
    """The parts to be sent by one call of `FileSender.send`, and how much of them was sent."""

    __slots__ = ("data", "first", "looked_at_s", "owner", "parts", "sent", "sent_of_first", "socket")

    def __init__(self, owner: object, socket: int, parts: list[Part]) -> None:
        self.owner = owner
        self.socket = socket
        self.parts = parts
        self.data = [memoryview(chunk) if file < 0 else None for chunk, file, _, _ in parts]  # type: ignore[arg-type]
        """For each part the bytes in memory; None for a part of a file."""
        self.first = 0
        """The index of the first part that was not sent completely."""
        self.sent_of_first = 0
        self.sent = 0
        self.looked_at_s = time.monotonic()


class EndedJob(NamedTuple):
    """A job that has ended: its owner, the number of bytes sent, and its status. `status` is 0 if all bytes were sent;
    otherwise `COLD`, `SHORT` or an errno. ECANCELED means that the socket was released, or that the thread stopped.
    """

    owner: Any
    sent: int
    status: int


class FileSender:
    """The thread that sends parts of files. It runs from the constructor on. All methods are called in the thread of
    the event loop.
    """

    def __init__(self, turn_size_max: int) -> None:
        """Start the thread. Raises OSError if no descriptor or no thread is available."""
        self._turn_size_max = turn_size_max
        self._epoll = select.epoll()
        self._ordered = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._ordered, select.EPOLLIN)
        self._orders: deque[_Job | int] = deque()
        self._ended: deque[tuple[_Job, int]] = deque()
        self._is_stopping = False
        self._open: dict[int, _Job] = {}
        self._watched: set[int] = set()
        self._ready: dict[int, None] = {}
        """The sockets whose jobs can send now, in the order of their turns."""
        self._thread = threading.Thread(target=self._run, name="file-sender", daemon=True)
        self._thread.start()

    def send(self, owner: object, socket: int, parts: list[Part]) -> None:
        """Send parts through a non-blocking socket that has no open job."""
        if self._is_stopping:
            raise RuntimeError("the thread has stopped")
        self._order(_Job(owner, socket, parts))

    def release(self, socket: int) -> None:
        """End the open job of a socket, if there is one, and close the socket. This may be called after `stop`."""
        if self._is_stopping:
            os.close(socket)
        else:
            self._order(socket)

    def ended(self) -> list[EndedJob]:
        """The jobs that have ended since the last call."""
        _clear(self._told)
        taken = [self._ended.popleft() for _ in range(len(self._ended))]
        return [EndedJob(job.owner, job.sent, status) for job, status in taken]

    def fileno(self) -> int:
        """A descriptor that is readable when jobs have ended."""
        return self._told

    def stop(self) -> None:
        """End the thread and its open jobs. Sockets that were not released stay open. A second call has no effect."""
        if not self._is_stopping:
            self._is_stopping = True
            os.eventfd_write(self._ordered, 1)
            self._thread.join()

    def _order(self, order: _Job | int) -> None:
        self._orders.append(order)
        os.eventfd_write(self._ordered, 1)

    # The thread

    def _run(self) -> None:
        while not self._is_stopping:
            for descriptor, _ in self._epoll.poll(0 if self._ready else None):
                if descriptor == self._ordered:
                    self._take_orders()
                elif descriptor in self._open:
                    self._ready[descriptor] = None
            self._give_turns()
        self._take_orders()
        for job in tuple(self._open.values()):
            self._end(job, errno.ECANCELED)

    def _take_orders(self) -> None:
        _clear(self._ordered)
        while self._orders:
            order = self._orders.popleft()
            if isinstance(order, int):
                self._let_go(order)
            else:
                self._begin(order)

    def _begin(self, job: _Job) -> None:
        self._open[job.socket] = job
        if job.socket not in self._watched:
            try:
                self._epoll.register(job.socket, select.EPOLLOUT | select.EPOLLET)
            except OSError as error:
                self._end(job, error.errno or errno.EIO)
                return
            self._watched.add(job.socket)
        self._ready[job.socket] = None

    def _let_go(self, socket: int) -> None:
        if socket in self._open:
            self._end(self._open[socket], errno.ECANCELED)
        if socket in self._watched:
            # Closing alone does not end it: the transport has another descriptor of the same socket.
            self._epoll.unregister(socket)
            self._watched.remove(socket)
        os.close(socket)

    def _give_turns(self) -> None:
        ready, self._ready = self._ready, {}
        for socket in ready:
            job = self._open[socket]
            try:
                status = self._send_some(job)
            except BlockingIOError:
                continue
            except OSError as error:
                status = error.errno or errno.EIO
            if status is None:
                self._ready[socket] = None
            else:
                self._end(job, status)

    def _send_some(self, job: _Job) -> int | None:
        """Send at most `turn_size_max` bytes of a job. Returns the job's status if it has ended, otherwise None. Raises
        OSError.
        """
        left = self._turn_size_max
        while job.first < len(job.parts):
            if left <= 0:
                return None
            _, file, position, size = job.parts[job.first]
            data = job.data[job.first]
            if data is not None:
                size = len(data)
                sent = os.write(job.socket, data[job.sent_of_first :])
            else:
                wanted = min(size - job.sent_of_first, left)
                if not _is_warm(job, file, position + job.sent_of_first, wanted):
                    return COLD
                sent = os.sendfile(job.socket, file, position + job.sent_of_first, wanted)
                if not sent:
                    return SHORT
            job.sent += sent
            left -= sent
            job.sent_of_first += sent
            if job.sent_of_first == size:
                job.sent_of_first = 0
                job.first += 1
        return 0

    def _end(self, job: _Job, status: int) -> None:
        del self._open[job.socket]
        self._ready.pop(job.socket, None)
        self._ended.append((job, status))
        os.eventfd_write(self._told, 1)


def _is_warm(job: _Job, file: int, position: int, size: int) -> bool:
    """Whether bytes of a file are in the page cache. They are checked again only when `CACHED_FOR_S` has passed."""
    now_s = time.monotonic()
    if now_s - job.looked_at_s <= CACHED_FOR_S:
        return True
    job.looked_at_s = now_s
    last = position + size - 1
    try:
        for place in (*range(position, last, SAMPLE_DISTANCE), last):
            if not os.preadv(file, [bytearray(1)], place, os.RWF_NOWAIT):
                return True  # The file is too short, which shows when it is sent.
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
    return True


def _clear(event: int) -> None:
    with suppress(BlockingIOError):
        os.eventfd_read(event)
