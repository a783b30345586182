"""The reaper: a process that survives the process of a test, kills the nodes of the test's cluster that are left, and
removes its directory.

It is started as a script, without site-packages. It reads lines from its standard input until that ends:

| line | meaning |
|---|---|
| `node PID` | kill this process at the end |
| `ended PID` | that process has ended |
| `directory PATH` | remove this directory at the end |
| `kept PATH` | do not remove it |
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

LAST_NODE_S = 2.0
POLL_S = 0.1


def main(lines: Iterable[str]) -> None:
    """Read all lines, and then kill the processes and remove the directories that they name."""
    nodes: dict[int, int | None] = {}
    directories: set[str] = set()
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "node" and int(rest) not in nodes:
            with suppress(ProcessLookupError):
                nodes[int(rest)] = _handle(int(rest))
        elif word == "ended":
            handle = nodes.pop(int(rest), None)
            if handle is not None:
                os.close(handle)
        elif word == "directory":
            directories.add(rest)
        elif word == "kept":
            directories.discard(rest)
    for pid, handle in nodes.items():
        with suppress(ProcessLookupError):
            _kill(pid, handle)
    # A node that was started at the last moment is not known here. It stops by itself, after it has made its directory.
    end = time.monotonic() + LAST_NODE_S if directories else 0.0
    while True:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        if time.monotonic() >= end:
            return
        time.sleep(POLL_S)


def _handle(pid: int) -> int | None:
    """A handle of a process, which stays valid even if another process gets its id; None if the system has no such
    handles.
    """
    return os.pidfd_open(pid) if sys.platform == "linux" else None


def _kill(pid: int, handle: int | None) -> None:
    """Kill a process, and wait until it has ended, so that it writes no more files."""
    if sys.platform != "linux" or handle is None:
        os.kill(pid, signal.SIGKILL)
        return
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    select.select([handle], [], [])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main(sys.stdin)
