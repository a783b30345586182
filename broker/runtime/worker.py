"""Runs work in a process of its own: long computations that read and write files, such as compaction, and the decoding
of users' data, which may crash or take memory without limit.

The work is a generator that gets the file system. It yields an event after each part, and the process waits at each
event until the broker requests the next one. So the broker can limit the rate of the work. A busy event loop slows the
work down, and the work does not slow the event loop down. The broker may send a value with its request for an event,
which the generator receives.

    broker -> process   a frame with the pickled work; then two frames for each event that the broker requests:
                            the pickled value that it sends; empty if it sends none
                            the `PickleBuffer` in that value, written without a copy; empty if there is none
    process -> broker   for each requested event a frame with a pickled `WorkerReply` (broker/runtime/work_reply.py)

The process ends when its input ends: a broker that is killed leaves no process behind. A process with `WorkerLimits`
gets a MemoryError, or is killed by the kernel, if its work exceeds the limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast

from moldau.broker.runtime.work_reply import FRAME_LENGTH, WorkerLimits, WorkerReply
from moldau.storage.files.port import FileSystem, Offload

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)

Work: TypeAlias = Callable[[FileSystem], Iterator[E]]
"""The work: a function that gets a file system and returns an iterator of events. It must be picklable: a function of a
module, or a `functools.partial` of one.
"""


class RunningWork(Protocol[E_co]):
    """Work in progress that waits at each event until the caller requests the next one."""

    async def next_event(self, sent: object = None, /) -> E_co | None:
        """Let the work continue to its next event. Returns the event, or None at the end of the work.

        A `sent` other than None is sent to the work, which has to be a generator then. Raises what the work raises, and
        `WorkerDied`, an OSError, if the process cannot be started or ends before the work does.
        """

    def close(self) -> None:
        """End the work, even if it has not completed."""


PIECE_SIZE: Final = 1 << 18
"""The number of bytes of a buffer that are written in one event loop iteration."""
MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(16 << 20)}
"""Environment variables of glibc: malloc reuses blocks of up to 4 MiB, and keeps up to 16 MiB at the end of its heap.
With its defaults it returns each block of a megabyte to the system, and each page of the next one is faulted in again.
"""
MODULE: Final = f"{__name__.rpartition('.')[0]}.worker_process"


class WorkerDied(ChildProcessError):
    """The worker process could not be started, or ended before the work did: it was killed, was out of memory, or the
    interpreter failed.

    The error has no errno, because it is not an error of the disk. `status` is the exit status of the process, negative
    for a signal; None if the process was not started.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


def next_event_of(events: Iterator[E], sent: object) -> E | None:
    """Send `sent` to the work, and return its next event; None at the end of the work."""
    if sent is None:
        return next(events, None)
    try:
        return cast("Generator[E, object, None]", events).send(sent)
    except StopIteration:
        return None


class WorkInThread(Generic[E]):
    """Work in an executor thread of this process. It is used if the files are in memory: another process could not read
    them.
    """

    def __init__(self, work: Work[E], fs: FileSystem, offload: Offload) -> None:
        self._begin: Callable[[], Iterator[E]] = lambda: work(fs)
        self._events: Iterator[E] | None = None
        self._offload = offload

    async def next_event(self, sent: object = None, /) -> E | None:
        return await self._offload(partial(self._step, sent))

    def _step(self, sent: object) -> E | None:
        if self._events is None:
            self._events = self._begin()
        return next_event_of(self._events, sent)

    def close(self) -> None:
        """End the work. A step that is running in its thread ends by itself."""
        self._begin = lambda: iter(())
        self._events = None


class WorkInProcess(Generic[E]):
    """Work in a process of its own, which starts when the first event is requested."""

    def __init__(self, work: Work[E], limits: WorkerLimits | None = None) -> None:
        self._work = work
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None

    async def next_event(self, sent: object = None, /) -> E | None:
        """Let the work continue to its next event. Returns the event, or None at the end of the work.

        Raises what the work raises, and `WorkerDied`.
        """
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        import pickle  # here, because an idle node runs no work

        buffers: list[pickle.PickleBuffer] = []
        pickled = b"" if sent is None else pickle.dumps(sent, protocol=5, buffer_callback=buffers.append)
        attached = buffers[0].raw() if buffers else memoryview(b"")
        assert len(buffers) <= 1, "a command has one frame for a buffer"
        try:
            process.stdin.write(FRAME_LENGTH.pack(len(pickled)) + pickled + FRAME_LENGTH.pack(len(attached)))
            for begin in range(0, len(attached), PIECE_SIZE):
                process.stdin.write(attached[begin : begin + PIECE_SIZE])
                await process.stdin.drain()
            (length,) = FRAME_LENGTH.unpack(await process.stdout.readexactly(FRAME_LENGTH.size))
            reply: WorkerReply = pickle.loads(await process.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            status = await process.wait()
            raise WorkerDied(f"the process of the work ended with status {status}", status) from None
        if reply.error is not None:
            raise reply.error
        return None if reply.is_end else cast("E", reply.event)

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                *(map(str, self._limits or ())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | MALLOC | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            )
        except OSError as error:  # The errno of this error does not come from a file of the work.
            raise WorkerDied(f"the process of the work cannot be started: {error}") from error
        assert process.stdin is not None
        import pickle

        sent = pickle.dumps(self._work)
        process.stdin.write(FRAME_LENGTH.pack(len(sent)) + sent)
        return process

    def close(self) -> None:
        """End the work and its process, even if the work has not completed."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            if self._process.stdin is not None:
                self._process.stdin.close()
