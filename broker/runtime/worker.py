"""Work in a process of its own: long computations that read and write files, such as compaction.

The work is a generator over the file port. It yields an event after each piece of work, and the process waits at each
event until the broker asks for the next one: so the broker limits the rate of the work, and a loaded event loop slows
the work down instead of the other way round.

    broker -> process   the pickled work; then one byte for each event that the broker wants
    process -> broker   for each of them a frame: length in 4 bytes, big-endian, and a pickled `Reply`

The process ends when its input ends: a broker that is killed leaves no process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from storage.files.port import FileSystem

E = TypeVar("E")

Work: TypeAlias = Callable[[FileSystem], Iterator[E]]
"""Picklable: a function of a module, or a `functools.partial` of one."""

FRAME_LENGTH: Final = Struct(">I")
NEXT: Final = b"\x01"
MODULE: Final = f"{__name__.rpartition('.')[0]}.worker_process"


class Reply(NamedTuple):
    """What the process tells of one step: an event, an error that the work raised, or with neither its end."""

    event: object = None
    error: Exception | None = None
    is_end: bool = False


class WorkerDied(ChildProcessError):
    """The process ended before the work did: killed, out of memory, or the interpreter failed."""


async def run_in_process(work: Work[E]) -> AsyncGenerator[E, None]:
    """The events of the work, each computed when it is asked for. Closing the generator kills the process.

    Raises what the work raises, `WorkerDied` where the process ends first, and OSError where it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        sent = pickle.dumps(work)
        process.stdin.write(FRAME_LENGTH.pack(len(sent)) + sent)
        while True:
            process.stdin.write(NEXT)
            try:
                (length,) = FRAME_LENGTH.unpack(await process.stdout.readexactly(FRAME_LENGTH.size))
                reply: Reply = pickle.loads(await process.stdout.readexactly(length))
            except (asyncio.IncompleteReadError, ConnectionError):
                raise WorkerDied(f"the process of the work ended with status {await process.wait()}") from None
            if reply.error is not None:
                raise reply.error
            if reply.is_end:
                return
            yield reply.event  # type: ignore[misc]  # the process only tells what the work yields
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()
        await process.wait()
