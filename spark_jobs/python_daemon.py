"""The daemon that starts Spark's Python workers, without the stack traces of workers whose reader has hung up.

Spark closes the connection of a worker when it has read enough: after the plan of each query, and when a query fails.
The worker that writes on then ends with BrokenPipeError, which pyspark's daemon prints; nothing is wrong, and on a
terminal the trace stands where the user looks for the reason. Any other trace is printed.
"""

from __future__ import annotations

import sys
from typing import Final, TextIO

BEGINNING: Final = "Traceback (most recent call last):"
DROPPED: Final = ("BrokenPipeError:", "ConnectionResetError:")
HELD_MAX: Final = 200
"""Lines of a trace that are held back until its last one tells what it is."""


class WithoutBrokenPipes:
    """A text stream that passes lines on to another, except for traces of a reader that has hung up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._unfinished = ""
        self._held: list[str] = []
        """The lines of a trace of which the last one has not come."""

    def write(self, text: str) -> int:
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            self._take(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        if self._unfinished and not self._held:
            self._stream.write(self._unfinished)
            self._unfinished = ""
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return False

    def _take(self, line: str) -> None:
        if self._held:
            self._held.append(line)
            is_over = not line.startswith((" ", "\n")) or len(self._held) >= HELD_MAX
            if is_over:
                if not line.startswith(DROPPED):
                    self._stream.write("".join(self._held))
                self._held = []
        elif line.startswith(BEGINNING):
            self._held = [line]
        else:
            self._stream.write(line)


def main() -> None:
    """Run pyspark's daemon; Spark starts it with the name of the workers' module as its argument."""
    from pyspark.daemon import manager

    sys.stderr = WithoutBrokenPipes(sys.stderr)
    manager()


if __name__ == "__main__":
    main()
