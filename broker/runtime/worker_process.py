"""The worker process of `moldau.broker.runtime.worker`: runs one work, and returns an event for each command of the
broker.

    python -m moldau.broker.runtime.worker_process [MEMORY_BYTES STEP_CPU_S]

It runs at a lower priority than the broker, because clients come first. It has a session of its own: a kernel with
autogroups (sched(7)) divides the processors among sessions, and so the broker does not wait because its worker has used
up their share. An error that cannot be pickled is replaced by a RuntimeError with its text. The kernel enforces its
`WorkerLimits` (setrlimit), except that macOS does not enforce the limit on memory.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import sys
from collections.abc import Generator
from typing import BinaryIO, Final

from moldau.broker.runtime.work_reply import FRAME_LENGTH, WorkerLimits, WorkerReply
from moldau.storage.files.local_files import LocalFiles

NICENESS: Final = 10
AUTOGROUP: Final = "/proc/self/autogroup"
"""The file with the niceness of the session, on a kernel with autogroups."""


def main() -> None:
    """Read the work and the commands from standard input, and answer on standard output."""
    # Ctrl-C in a terminal reaches the broker too, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
        os.setsid()
        with open(AUTOGROUP, "w", encoding="ascii") as file:
            file.write(str(NICENESS))
    limits = WorkerLimits(*map(int, sys.argv[1:])) if sys.argv[1:] else None
    if limits is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    commands = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # A print must not get between the replies.
    with contextlib.suppress(BrokenPipeError, EOFError):
        serve_work(commands, replies, limits)
    os._exit(0)  # The broker has ended, or needs no more events: nothing has to be closed.


def serve_work(commands: BinaryIO, replies: BinaryIO, limits: WorkerLimits | None = None) -> None:
    """Run the work that the first frame of `commands` holds, and answer each further command. Raises EOFError or
    BrokenPipeError if the broker has ended.
    """
    work = pickle.loads(read_frame(commands))
    steps: Generator[object, object, None] | None = None
    while True:
        pickled, attached = read_frame(commands), read_frame(commands)
        try:
            if limits is not None:
                limit_cpu(limits.step_cpu_s)
            if steps is None:
                steps = work(LocalFiles())
            reply = WorkerReply(event=steps.send(pickle.loads(pickled, buffers=[attached])) if pickled else next(steps))
        except StopIteration:
            reply = WorkerReply(is_end=True)
        except Exception as error:
            reply = WorkerReply(error=error)
        encoded = encode_reply(reply)
        replies.write(FRAME_LENGTH.pack(len(encoded)) + encoded)
        replies.flush()


def limit_cpu(step_s: int) -> None:
    """Let the kernel end the process if it uses more than `step_s` seconds of processor time from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed_s = int(used.ru_utime + used.ru_stime) + 1 + step_s
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (allowed_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def encode_reply(reply: WorkerReply) -> bytes:
    """Pickle a reply. If the reply cannot be pickled and restored, it is replaced by one with a RuntimeError that has
    its text.
    """
    try:
        encoded = pickle.dumps(reply)
        pickle.loads(encoded)
    except Exception:
        said = reply.event if reply.error is None else reply.error
        return pickle.dumps(WorkerReply(error=RuntimeError(f"{type(said).__name__}: {said}")))
    return encoded


def read_frame(file: BinaryIO) -> bytes:
    """Read a frame and return its contents. Raises EOFError if the input ends."""
    (length,) = FRAME_LENGTH.unpack(read_exactly(file, FRAME_LENGTH.size))
    return read_exactly(file, length)


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """Read exactly `size` bytes. Raises EOFError if the input ends."""
    data = bytearray()
    while len(data) < size:
        piece = file.read(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


if __name__ == "__main__":
    main()
