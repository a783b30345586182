"""Work in a process of its own: long computations that read and write files, such as compaction.

The work is a generator over the file port. It yields an event after each piece of work, and the process waits at each
event until the broker asks for the next one: so the broker limits the rate of the work, and a loaded event loop slows
the work down instead of the other way round.

    broker -> process   a frame with the pickled work; then one byte for each event that the broker wants
    process -> broker   for each of them a frame with a pickled `Reply` (broker/runtime/work_reply.py)

The process ends when its input ends: a broker that is killed leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast

from moldau.broker.runtime.work_reply import FRAME_LENGTH, Reply
from moldau.storage.files.port import FileSystem

E = TypeVar("E")
T = TypeVar("T")
E_co = TypeVar("E_co", covariant=True)

Work: TypeAlias = Callable[[FileSystem], Iterator[E]]
"""Picklable: a function of a module, or a `functools.partial` of one."""


class Offload(Protocol):
    """Runs work in an executor thread (`Environment.offload`)."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class RunningWork(Protocol[E_co]):
    """Work that waits at each event until the caller requests the next one."""

    async def next_event(self) -> E_co | None:
        """Let the work go on to its next event; None at its end. Raises what the work raises, and `WorkerDied`, an
        OSError, where the process cannot be started or ends before the work does."""

    def close(self) -> None:
        """End the work, whatever its state."""


NEXT: Final = b"\x01"
MODULE: Final = f"{__name__.rpartition('.')[0]}.worker_process"


class WorkerDied(ChildProcessError):
    """The process cannot be started, or ended before the work did: killed, out of memory, or the interpreter failed.

    It has no errno, because it is not an error of the disk.
    """


class WorkInThread(Generic[E]):
    """One piece of work in an executor thread of this process: another process could not read its files, which are in
    memory.
    """

    def __init__(self, work: Work[E], fs: FileSystem, offload: Offload) -> None:
        self._begin: Callable[[], Iterator[E]] = lambda: work(fs)
        self._events: Iterator[E] | None = None
        self._offload = offload

    async def next_event(self) -> E | None:
        return await self._offload(self._step)

    def _step(self) -> E | None:
        if self._events is None:
            self._events = self._begin()
        return next(self._events, None)

    def close(self) -> None:
        """End the work. A step that is under way in its thread ends by itself."""
        self._begin = lambda: iter(())
        self._events = None


class WorkInProcess(Generic[E]):
    """One piece of work and its process, which starts with the first event that is asked for."""

    def __init__(self, work: Work[E]) -> None:
        self._work = work
        self._process: asyncio.subprocess.Process | None = None

    async def next_event(self) -> E | None:
        """Let the work go on to its next event; None at its end.

        Raises what the work raises, and `WorkerDied`.
        """
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        import pickle  # here, because an idle node runs no work

        process.stdin.write(NEXT)
        try:
            (length,) = FRAME_LENGTH.unpack(await process.stdout.readexactly(FRAME_LENGTH.size))
            reply: Reply = pickle.loads(await process.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerDied(f"the process of the work ended with status {await process.wait()}") from None
        if reply.error is not None:
            raise reply.error
        return None if reply.is_end else cast("E", reply.event)

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            )
        except OSError as error:  # The errno of this error does not come from a file of the work.
            raise WorkerDied(f"the process of the work cannot be started: {error}") from error
        assert process.stdin is not None
        import pickle

        sent = pickle.dumps(self._work)
        process.stdin.write(FRAME_LENGTH.pack(len(sent)) + sent)
        return process

    def close(self) -> None:
        """End the work and its process, whatever its state."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            if self._process.stdin is not None:
                self._process.stdin.close()
