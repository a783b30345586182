"""Supervised coroutines and periodic jobs."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

from moldau.broker.runtime.tasks import Job, Tasks
from moldau.testing.simulation.world import World


def live(story: Callable[[Tasks, list[str]], Awaitable[None]]) -> list[str]:
    """Run a story in virtual time; what failed."""
    failures: list[str] = []

    async def run() -> None:
        await story(Tasks(failures.append), failures)

    with World(1) as world:
        world.run(run(), limit_s=100)
    return failures


def test_a_failure_is_reported_and_the_end_is_not() -> None:
    async def fail() -> None:
        raise ValueError

    async def story(tasks: Tasks, failures: list[str]) -> None:
        tasks.spawn(asyncio.sleep(1), "sleep")
        await tasks.spawn(fail(), "this")

    assert live(story) == ["this failed"]


def test_a_job_runs_at_its_times_and_survives_a_disk_error() -> None:
    runs: list[float] = []

    async def story(tasks: Tasks, failures: list[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def run() -> None:
            runs.append(round(loop.time() - began))
            if len(runs) == 2:
                raise OSError("no space")

        tasks.run_periodically(Job("a job", 5000, run, delay_ms=1000))
        await asyncio.sleep(12)
        await tasks.stop()
        await asyncio.sleep(10)

    assert live(story) == []
    assert runs == [1, 6, 11]


def test_a_job_with_a_bug_stops_the_broker() -> None:
    async def story(tasks: Tasks, failures: list[str]) -> None:
        async def run() -> None:
            raise KeyError

        tasks.run_periodically(Job("a job", 5000, run))
        await asyncio.sleep(20)

    assert live(story) == ["a job failed"]


def test_a_stop_ends_what_runs_and_what_is_begun_while_it_ends() -> None:
    ended: list[str] = []

    async def story(tasks: Tasks, failures: list[str]) -> None:
        async def late() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append("late")

        async def early() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                tasks.spawn(late())
                await asyncio.sleep(0.1)
                ended.append("early")

        tasks.spawn(early())
        await asyncio.sleep(1)
        await tasks.stop()
        assert ended == ["early", "late"]

    assert live(story) == []


def test_a_task_that_is_stopped_before_its_first_step_leaves_no_coroutine_that_was_never_awaited() -> None:
    async def never_begun() -> None:
        raise AssertionError

    async def run() -> None:
        tasks = Tasks(lambda _: None)
        tasks.spawn(never_begun())
        await tasks.stop()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(run())
        gc.collect()  # which also frees, and warns of, what other tests of this process left
    assert [str(each.message) for each in warned if never_begun.__name__ in str(each.message)] == []
