"""The machine's environment keeps the promises of the port."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from moldau.broker.runtime.environment import EXIT_HALTED, Environment, LocalEnvironment


def test_offloaded_work_runs_beside_the_loop() -> None:
    async def scenario() -> tuple[int, str]:
        local = LocalEnvironment(asyncio.get_running_loop())
        environment: Environment = local
        here = threading.get_ident()
        there = await environment.offload(threading.get_ident)
        assert there != here
        with pytest.raises(ZeroDivisionError):
            await environment.offload(lambda: 1 // 0)
        threads = {await environment.offload(lambda: threading.current_thread().name) for _ in range(20)}
        local.close()
        return len(threads), threads.pop()

    count, name = asyncio.run(scenario())
    assert 1 <= count <= 4
    assert name.startswith("offload")


def test_no_thread_starts_before_work_is_offloaded() -> None:
    async def scenario() -> None:
        before = threading.active_count()
        environment = LocalEnvironment(asyncio.get_running_loop())
        environment.wall_ms()
        environment.close()
        assert threading.active_count() == before

    asyncio.run(scenario())


def test_clocks_and_entropy() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        environment = LocalEnvironment(loop)
        assert abs(environment.wall_ms() - time.time() * 1000) < 60_000
        assert abs(environment.monotonic_ms() - loop.time() * 1000) < 60_000
        assert len(environment.entropy(16)) == 16
        assert environment.entropy(16) != environment.entropy(16)

    asyncio.run(scenario())


def test_halt_ends_the_process_without_cleaning_up_and_says_why() -> None:
    program = """
import asyncio, atexit
from moldau.broker.runtime.environment import LocalEnvironment
atexit.register(print, "cleaned up")
async def main():
    try:
        LocalEnvironment(asyncio.get_running_loop()).halt("two leaders in one epoch")
    finally:
        print("finally")
asyncio.run(main())
"""
    root = Path(__file__).parents[4]
    ended = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_HALTED
    assert "two leaders in one epoch" in ended.stderr
    assert ended.stdout == ""
