"""Simulated code that asks the real world is stopped, whatever it does with the exception."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from moldau.testing.simulation.reality import RealityTouched
from moldau.testing.simulation.world import EPOCH_MS, SimulatedEnvironment, World

# Lambdas, because a function that was bound before the run is out of the guard's reach.
TOUCHES: dict[str, Callable[[], object]] = {
    "wall clock": lambda: time.time(),
    "monotonic clock": lambda: time.monotonic_ns(),
    "sleep": lambda: time.sleep(0),
    "module random": lambda: random.random(),
    "random choice": lambda: random.choice([1, 2]),
    "unseeded generator": random.Random,
    "urandom": lambda: os.urandom(4),
    "secrets": lambda: secrets.token_bytes(4),
    "uuid4": lambda: uuid.uuid4(),
    "thread": lambda: threading.Thread(target=print).start(),
    "executor": lambda: ThreadPoolExecutor(1).submit(print),
    "open": lambda: open("/dev/null"),  # noqa: SIM115
    "path": lambda: Path("/dev/null").read_bytes(),
    "stat": lambda: os.path.exists("/"),
    "listing": lambda: os.listdir("/"),
    "fsync": lambda: os.fsync(0),
    "socket": socket.socket,
    "name": lambda: socket.getaddrinfo("localhost", 1),
    "process": lambda: subprocess.run(["/bin/true"], check=True),
    "all tasks": lambda: asyncio.all_tasks(),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_touching_reality_ends_the_run(name: str) -> None:
    async def main(environment: SimulatedEnvironment) -> None:
        TOUCHES[name]()

    with World(1) as world, pytest.raises(RealityTouched):
        world.add_host("host").boot(main)
        world.run(asyncio.sleep(1))


def test_swallowing_the_exception_does_not_help() -> None:
    async def main(environment: SimulatedEnvironment) -> None:
        with suppress(BaseException):
            time.time()
        await asyncio.sleep(10)

    with World(1) as world, pytest.raises(RealityTouched):
        world.add_host("host").boot(main)
        world.run(asyncio.sleep(1))


def test_other_threads_and_later_times_are_free() -> None:
    seen: list[float] = []
    go_on, done = threading.Event(), threading.Event()

    def other() -> None:
        go_on.wait()
        seen.append(time.time())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    async def scenario() -> None:
        go_on.set()
        done.wait()

    with World(1) as world:
        world.run(scenario())
    thread.join()
    assert seen
    assert time.time() >= seen[0]
    assert random.random() < 1
    assert logging.time is time  # type: ignore[attr-defined]


def test_imports_are_excused() -> None:
    sys.modules.pop("colorsys", None)

    async def scenario() -> str:
        return importlib.import_module("colorsys").__name__

    with World(1) as world:
        assert world.run(scenario()) == "colorsys"


def test_log_lines_and_tracebacks_carry_virtual_time(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        await asyncio.sleep(90)
        try:
            raise ValueError("expected")
        except ValueError:
            logging.getLogger("simulated").exception("went wrong")

    with World(1) as world:
        world.run(scenario())
    assert 0 <= caplog.records[0].created - (EPOCH_MS / 1000 + 90) < 1
