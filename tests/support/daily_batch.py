"""Runs many commands of `moldau` in one process: `python -m tests.support.daily_batch REQUESTS ANSWERS`. Each line of
both files is JSON.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from moldau.broker.cli.command import main as run_moldau

TRACEBACK: Final = 70
HANG: Final = 71
"""The statuses of a command that ends with a traceback, or does not end. The command itself has no such status."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str
    seconds: float


class Overtime(BaseException):
    """The command has not ended in time. It is no `Exception`, so that no command handles it."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Overtime


def run_one(words: Sequence[str], seconds_max: float) -> Ended:
    """Run a command in this process, with its standard streams replaced."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before, begun = (sys.stdout, sys.stderr), time.monotonic()
    sys.stdout, sys.stderr = out, err
    signal.setitimer(signal.ITIMER_REAL, seconds_max)
    try:
        status = run_moldau(words)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except Overtime:
        status = HANG
    except Exception:
        status = TRACEBACK
        traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout, sys.stderr = before
    said = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Ended(status, said[0], said[1], time.monotonic() - begun)


def run_all(commands: Iterable[Sequence[str]], directory: Path, seconds_max: float = 20) -> list[Ended]:
    """Run the commands one after the other in a process of their own. `directory` holds the files."""
    requests, answers = directory / "requests.jsonl", directory / "answers.jsonl"
    requests.write_text("".join(json.dumps([list(words), seconds_max]) + "\n" for words in commands))
    line = [sys.executable, "-m", "tests.support.daily_batch", str(requests), str(answers)]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)
    return [Ended(*json.loads(each)) for each in answers.read_text().splitlines()]


def main() -> None:
    signal.signal(signal.SIGALRM, _interrupt)
    requests, answers = map(Path, sys.argv[1:])
    with answers.open("w") as written:
        for line in requests.read_text().splitlines():
            request: list[Any] = json.loads(line)
            written.write(json.dumps(run_one(*request)) + "\n")


if __name__ == "__main__":
    main()
