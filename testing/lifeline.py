"""Ends the nodes and removes the directories of a cluster when the process of the test dies, even by SIGKILL.

    the test's process ──pipe──▶ standard input of every node: `moldau serve --until-eof` stops when it closes
                       ──pipe──▶ the reaper: it kills nodes that do not stop (a paused one), and removes the directory

The kernel closes both pipes when the last process that holds their writing ends has ended. Both ends are closed in
children that the test forks; children that it starts by exec do not inherit them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

REAPER: Final = Path(__file__).with_name("reaper.py")


class Lifeline:
    """The pipes and the reaper process of one cluster. `close` ends the reaper, which then removes the watched
    directories except those that were passed to `forget_directory`.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.input: Final = FileIO(reading, "r")
        """The standard input of every node. Nothing is ever written into it."""
        self._held = FileIO(writing, "w")
        self._reaper: subprocess.Popen[bytes] | None = None
        _close_after_fork(self._held)

    def add_node(self, pid: int) -> None:
        """Note that a node has started. If a reaper runs, it kills the node when this process ends, because it then
        removes the directory into which the node writes. Without a reaper the node stops by itself.
        """
        if self._reaper is not None:
            self._tell(f"node {pid}")

    def watch_node(self, pid: int) -> None:
        """Let the reaper kill a process when this process ends."""
        self._tell(f"node {pid}")

    def forget_node(self, pid: int) -> None:
        """Note that a node's process has ended, because another process may get its id soon."""
        if self._reaper is not None:
            self._tell(f"ended {pid}")

    def watch_directory(self, path: Path) -> None:
        """Let the reaper remove a directory when this process ends. The directory need not exist yet."""
        self._tell(f"directory {path}")

    def forget_directory(self, path: Path) -> None:
        """Tell the reaper not to remove a directory, because it is to be kept, or is removed already."""
        self._tell(f"kept {path}")

    def close(self) -> None:
        """End the reaper. Nodes that still run stop, because their standard input is closed."""
        self._held.close()
        self.input.close()
        if self._reaper is not None:
            assert self._reaper.stdin is not None
            with suppress(BrokenPipeError):
                self._reaper.stdin.close()
            self._reaper.wait()

    def _tell(self, line: str) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(REAPER)],  # without site-packages it starts in 10 ms
                stdin=subprocess.PIPE,
                start_new_session=True,  # a signal for the test's process group does not end it
            )
            assert self._reaper.stdin is not None
            _close_after_fork(self._reaper.stdin)  # type: ignore[arg-type] # Popen calls a BufferedWriter an IO
        assert self._reaper.stdin is not None
        with suppress(BrokenPipeError):
            self._reaper.stdin.write(line.encode() + b"\n")
            self._reaper.stdin.flush()


def _close_after_fork(end: FileIO) -> None:
    reference = weakref.ref(end)

    def close() -> None:
        held = reference()
        if held is not None and not held.closed:
            os.close(held.fileno())

    os.register_at_fork(after_in_child=close)
