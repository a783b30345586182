"""The process of `moldau.broker.runtime.worker`: runs one piece of work, one event for each byte that the broker sends.

It runs at a lower priority than the broker: clients come first. An error that cannot be pickled is replaced
by a RuntimeError with its text.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from moldau.broker.runtime.work_reply import FRAME_LENGTH, Reply
from moldau.storage.files.local_files import LocalFiles

NICENESS: Final = 10


def main() -> None:
    """Read the work from standard input, and answer on standard output."""
    # Ctrl-C in a terminal reaches the broker too, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    commands = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # A print must not get between the replies.
    with contextlib.suppress(BrokenPipeError, EOFError):
        serve(commands, replies)
    os._exit(0)  # The broker has ended, or needs no more events: nothing has to be closed.


def serve(commands: BinaryIO, replies: BinaryIO) -> None:
    """Answer each command. Raises EOFError or BrokenPipeError where the broker has ended."""
    (length,) = FRAME_LENGTH.unpack(read_exactly(commands, FRAME_LENGTH.size))
    work = pickle.loads(read_exactly(commands, length))
    steps: Iterator[object] = iter(())
    is_begun = False
    while True:
        read_exactly(commands, 1)
        try:
            if not is_begun:
                is_begun, steps = True, work(LocalFiles())
            reply = Reply(event=next(steps))
        except StopIteration:
            reply = Reply(is_end=True)
        except Exception as error:
            reply = Reply(error=error)
        encoded = encode(reply)
        replies.write(FRAME_LENGTH.pack(len(encoded)) + encoded)
        replies.flush()


def encode(reply: Reply) -> bytes:
    """Pickle the reply. An error that the pickle cannot restore is replaced by a RuntimeError with its text."""
    try:
        encoded = pickle.dumps(reply)
        pickle.loads(encoded)
    except Exception:
        said = reply.event if reply.error is None else reply.error
        return pickle.dumps(Reply(error=RuntimeError(f"{type(said).__name__}: {said}")))
    return encoded


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """`size` bytes. Raises EOFError where the input ends."""
    data = b""
    while len(data) < size:
        piece = file.read(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


if __name__ == "__main__":
    main()
