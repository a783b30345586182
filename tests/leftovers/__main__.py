"""Test runs that end in every way, and what they leave behind: `python -m tests.leftovers --runs 200`.

Each run is a session of pytest with a cluster of three nodes and a node in memory. The table says how it is ended.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

PATIENCE_S: Final = 60.0
GONE_S: Final = 15.0
"""How long a node may take to end after its test run."""
TOKEN: Final = "MOLDAU_RUN_OF_LEFTOVERS"
"""The variable that every process of a run inherits."""
PROJECT: Final = """
import os, signal, sys, time
import pytest

@pytest.fixture
def service(kafka, kafka_cluster):
    kafka.produce(kafka.topic(), "x")
    {fixture}
    print("ready", flush=True)
    yield

def test_waits(service, kafka_cluster):
    {test}
    time.sleep(100)
"""


class Ending(NamedTuple):
    """How a run is ended."""

    name: str
    fixture: str = ""
    test: str = ""
    act: Callable[[subprocess.Popen[str]], None] = lambda run: None
    """What is done to the run once its fixtures are ready."""
    is_early: bool = False
    """Whether it is done at a random time instead, most often while nodes start."""


def kill(run: subprocess.Popen[str]) -> None:
    run.kill()


def heed_interrupts() -> None:
    """A process in the background of a shell ignores the interrupt, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt(run: subprocess.Popen[str]) -> None:
    """What Ctrl-C on a terminal does: the whole process group gets the signal."""
    os.killpg(run.pid, signal.SIGINT)


ENDINGS: Final = (
    Ending("SIGKILL in a test", act=kill),
    Ending("SIGKILL while nodes start", act=kill, is_early=True),
    Ending("SIGKILL while a node is paused", fixture="kafka_cluster.node(2).pause()", act=kill),
    Ending("SIGKILL of the process group", act=lambda run: os.killpg(run.pid, signal.SIGKILL)),
    Ending("SIGTERM", act=lambda run: run.terminate()),
    Ending("Ctrl-C", act=interrupt),
    Ending("Ctrl-C while nodes start", act=interrupt, is_early=True),
    Ending("an error in a fixture", fixture="raise RuntimeError"),
    Ending("a crash in a fixture", fixture="os.abort()"),
    Ending("an exit in a test, with a child that lives on", test="os.fork() or time.sleep(1); os._exit(3)"),
)


class Leftovers(NamedTuple):
    """What is left of a run, and how long its processes took to end."""

    processes: list[int]
    files: list[str]
    took_s: float


def leftovers_of(ending: Ending, draw: random.Random) -> Leftovers:
    """Make one run, end it, and look."""
    token = f"{draw.getrandbits(64):016x}"
    with tempfile.TemporaryDirectory(prefix="leftovers-") as base:
        project, temporary = Path(base, "project"), Path(base, "tmp")
        project.mkdir()
        temporary.mkdir()
        (project / "test_run.py").write_text(PROJECT.format(fixture=ending.fixture, test=ending.test))
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-s", "-p", "moldau.testing.plugin", "-p", "no:cacheprovider"],
            cwd=project,
            env=os.environ | {"TMPDIR": str(temporary), TOKEN: token, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        assert run.stdout is not None
        if ending.is_early:
            time.sleep(draw.uniform(0.2, 3.0))
        else:
            while (line := run.stdout.readline()) and "ready" not in line:
                pass
        ending.act(run)
        run.wait(PATIENCE_S)
        began = time.monotonic()
        while (processes := processes_of(token)) and time.monotonic() - began < GONE_S:
            time.sleep(0.02)
        took_s = time.monotonic() - began
        run.stdout.close()
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        return Leftovers(processes, sorted(path.name for path in temporary.iterdir()), took_s)


def processes_of(token: str) -> list[int]:
    """The processes that inherited the variable of a run."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # It has ended meanwhile.
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    print(f"seed {given.seed}")
    left = 0
    longest_s = dict.fromkeys((each.name for each in ENDINGS), 0.0)
    for number in range(given.runs):
        ending = ENDINGS[number % len(ENDINGS)]
        found = leftovers_of(ending, draw)
        longest_s[ending.name] = max(longest_s[ending.name], found.took_s)
        if found.processes or found.files:
            left += 1
            print(f"run {number}, {ending.name}: {len(found.processes)} processes, {found.files}", flush=True)
    for name, took_s in longest_s.items():
        print(f"{took_s:6.2f} s  the longest until all processes had ended: {name}")
    print(f"{left} of {given.runs} runs left a process or a directory")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
