"""The daemon that starts Spark's Python workers, without the stack traces of workers whose reader has hung up.

Spark closes the connection to a worker when it has read enough: after the plan of each query, and when a query fails.
The worker then ends with a BrokenPipeError if it is writing, or with an EOFError or ConnectionResetError if it waits
for the next request. pyspark's daemon prints the stack trace, although nothing is wrong, and on a terminal it hides the
reason that the user looks for. Such a trace is left out with the line that introduces it and with the words that chain
it to another one. Any other trace is printed.
"""

from __future__ import annotations

import sys
from typing import Final, TextIO

TRACE_START: Final = "Traceback (most recent call last):"
DROPPED_LAST_LINES: Final = ("BrokenPipeError:", "ConnectionResetError:", "EOFError\n")
"""The beginnings of the last lines of the traces that are left out. pyspark raises EOFError without a message at the
end of its input."""
TRACE_INTRODUCTIONS: Final = (
    "PySpark daemon failed to flush the output to the worker process:",
    "PySpark worker failed with exception:",
    "Exception ignored in",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
"""The beginnings of lines that introduce the trace after them."""
HELD_LINES_MAX: Final = 200
"""The most lines of a trace that are held back. The last line of a trace tells whether it is left out."""


class BrokenPipeTraceFilter:
    """A text stream that passes lines on to another stream, except for the traces of workers whose
    reader has hung up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._unfinished = ""
        self._held: list[str] = []
        """The lines that are held back: an introduction, or a trace whose last line has not come."""
        self._is_trace = False
        """Whether a trace has begun in the lines that are held back."""
        self._is_after_dropped = False
        """Whether a trace was left out, and only empty lines have come since."""

    def write(self, text: str) -> int:
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            self._filter_line(f"{line}\n")
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

    def _filter_line(self, line: str) -> None:
        if self._is_trace:
            self._continue_trace(line)
        elif line.startswith(TRACE_START):
            self._held.append(line)
            self._is_trace = True
        elif self._held and line.startswith(DROPPED_LAST_LINES):
            self._release(is_dropped=True)  # Python leaves out the beginning of a trace without frames.
        elif self._held and line == "\n":
            self._held.append(line)
        elif line.startswith(TRACE_INTRODUCTIONS):
            self._release(is_dropped=False)
            self._held = [line]
        else:
            is_written = line != "\n" or not self._is_after_dropped
            self._release(is_dropped=False)
            if is_written:
                self._stream.write(line)
            else:
                self._is_after_dropped = True

    def _continue_trace(self, line: str) -> None:
        self._held.append(line)
        if not line.startswith((" ", "\n")) or len(self._held) >= HELD_LINES_MAX:
            self._release(is_dropped=line.startswith(DROPPED_LAST_LINES))

    def _release(self, *, is_dropped: bool) -> None:
        """Print the lines that are held back, or drop them."""
        if self._held and not is_dropped:
            self._stream.write("".join(self._held))
        self._held = []
        self._is_trace = False
        self._is_after_dropped = is_dropped


def main() -> None:
    """Run pyspark's daemon. Spark starts this program with the name of the workers' module as its argument."""
    from pyspark.daemon import manager

    sys.stderr = BrokenPipeTraceFilter(sys.stderr)
    manager()


if __name__ == "__main__":
    main()
